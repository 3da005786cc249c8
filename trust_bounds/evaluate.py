"""``trust-bounds evaluate``: every bound at the given divergences, and the inverse question."""

from __future__ import annotations

import csv
import io
import json
import math
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.table import Table

from bounds import registry
from bounds.errors import InputError
from bounds.evaluate import BoundValue, Evaluation, evaluate
from bounds.invert import Inverse, largest_horizon, largest_kl
from bounds.quantities import QUANTITIES
from trust_bounds.common import console, fail
from trust_bounds.list import order_text

CAPTION = (
    "given, derived: a certified bound if the inputs hold. approximation: a small-divergence "
    "expansion of a missing input, not a guarantee. missing: inputs absent. "
    "KL is KL(roll || theta) in nats; chi2 is chi2(theta || roll). * = least certified bound. "
    "TRM = arXiv 2512.23075."
)


class Format(StrEnum):
    """Output formats of ``evaluate``."""

    table = "table"
    json = "json"
    csv = "csv"
    latex = "latex"


def input_notes(entry: BoundValue) -> str:
    """How the inputs that were not given came about, e.g. ``tv_max (Pinsker)``."""
    if entry.status == "missing":
        absent = [name for name, source in entry.inputs.items() if source.status == "missing"]
        if not absent:
            return "no member has its inputs"
        return "needs " + ", ".join(
            "sampled ratios (a log: trust-bounds audit)" if name == "log_ratio" else name
            for name in absent
        )
    if entry.bound.role == "minimum":
        return f"least of {len(entry.holds_for)} bounds"
    notes = [f"{name} ({source})" for name, source in entry.inputs.items() if source.lemmas]
    return ", ".join(notes) if notes else "all given"


def record(entry: BoundValue) -> dict[str, Any]:
    """One bound as a JSON-ready mapping (an infinite value is null with ``infinite: true``)."""
    value = None if entry.value is None else float(entry.value)
    infinite = value is not None and math.isinf(value)
    row: dict[str, Any] = {
        "name": entry.name,
        "value": None if infinite else value,
        "order": order_text(entry.bound),
        "vacuous": None if entry.vacuous is None else bool(entry.vacuous),
        "source": entry.bound.source,
        "status": entry.status,
        "owner": entry.bound.owner,
        "kl_direction": entry.bound.kl_direction,
        "inputs": {
            name: {"status": source.status, "lemmas": list(source.lemmas)}
            for name, source in entry.inputs.items()
        },
    }
    if infinite:
        row["infinite"] = True
    if entry.bound.role == "minimum":
        row["least_of"] = list(entry.holds_for)
    return row


def _inverse_text(entry: Inverse) -> str:
    if entry.value is None:
        return "-"
    if math.isinf(entry.value):
        return "any"
    if entry.value == 0:
        return "none"
    return f"{entry.value:,.0f}" if entry.variable == "T" else f"{entry.value:.3g}"


def _table(result: Evaluation) -> Table:
    table = Table(title=_title(result), caption=CAPTION, caption_justify="left")
    table.add_column("")
    table.add_column("bound", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("order in T", no_wrap=True)
    table.add_column("vacuous")
    table.add_column("status")
    table.add_column("inputs", overflow="fold")
    table.add_column("source", no_wrap=True)
    best = result.smallest
    for entry in result:
        marked = best is not None and entry.name == best.name
        value = "-" if entry.value is None else f"{float(entry.value):.6g}"
        vacuous = "-" if entry.vacuous is None else ("yes" if bool(entry.vacuous) else "no")
        table.add_row(
            "*" if marked else "",
            entry.name,
            value,
            order_text(entry.bound),
            vacuous,
            entry.status,
            input_notes(entry),
            "ours" if entry.bound.owner == "ours" else "TRM",
            style="bold" if marked else ("dim" if entry.value is None else None),
        )
    return table


def _inverse_table(inverses: dict[str, dict[str, Inverse]], target: float) -> Table:
    table = Table(
        title=f"How far may it go? Largest value with bound <= {target:g}, the other inputs held",
        caption="any: no value searched (T <= 1e9, kl_max <= 1e3) breaks the target; "
        "none: no value meets it; K_seq is kept at most T * kl_max.",
        caption_justify="left",
    )
    table.add_column("bound", no_wrap=True)
    for variable in inverses:
        label = "largest T (tokens)" if variable == "T" else "largest kl_max (nats)"
        table.add_column(label, justify="right", no_wrap=True)
    table.add_column("status")
    first = next(iter(inverses.values()))
    for name, entry in first.items():
        texts = [_inverse_text(found[name]) for found in inverses.values()]
        if any(text != "-" for text in texts):
            table.add_row(name, *texts, entry.status)
    return table


def _title(result: Evaluation) -> str:
    given = [
        f"{name} = {float(result.resolved.values[name]):g}"  # type: ignore[arg-type]
        for name, source in result.resolved.provenance.items()
        if source.status == "given"
    ]
    return "Bounds on |Error|, rewards in [0, 1]: " + ", ".join(given)


def _csv(records: list[dict[str, Any]]) -> str:
    columns = ["name", "value", "order", "vacuous", "source", "status"]
    columns += [key for key in ("largest_T", "largest_kl_max") if key in records[0]]
    stream = io.StringIO()
    writer = csv.DictWriter(stream, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for row in records:
        writer.writerow({**row, "value": math.inf if row.get("infinite") else row["value"]})
    return stream.getvalue()


def _latex(result: Evaluation) -> str:
    lines = [
        r"% needs \usepackage{booktabs,amsmath,amssymb}",
        r"\begin{tabular}{llrll}",
        r"\toprule",
        r"bound & formula & value & status & source \\",
        r"\midrule",
    ]
    for entry in result:
        value = "--" if entry.value is None else f"{float(entry.value):.6g}"
        mantissa, _, exponent = value.partition("e")
        if exponent:
            value = rf"${mantissa}\times 10^{{{int(exponent)}}}$"
        if value == "inf":
            value = r"$\infty$"
        formula = r"minimum" if entry.bound.role == "minimum" else f"${entry.bound.latex}$"
        source = "ours" if entry.bound.owner == "ours" else "arXiv 2512.23075"
        lines.append(rf"{entry.name} & {formula} & {value} & {entry.status} & {source} \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command("evaluate")
    def evaluate_command(
        T: Annotated[
            float | None,
            typer.Option("--T", "-T", help=QUANTITIES["T"].meaning, show_default=False),
        ] = None,
        kl_max: Annotated[float | None, typer.Option(help=QUANTITIES["kl_max"].meaning)] = None,
        tv_max: Annotated[float | None, typer.Option(help=QUANTITIES["tv_max"].meaning)] = None,
        kl_seq: Annotated[float | None, typer.Option(help=QUANTITIES["kl_seq"].meaning)] = None,
        tv_seq: Annotated[float | None, typer.Option(help=QUANTITIES["tv_seq"].meaning)] = None,
        chi2_max: Annotated[float | None, typer.Option(help=QUANTITIES["chi2_max"].meaning)] = None,
        chi2_mean: Annotated[
            float | None, typer.Option(help=QUANTITIES["chi2_mean"].meaning)
        ] = None,
        hel_max: Annotated[float | None, typer.Option(help=QUANTITIES["hel_max"].meaning)] = None,
        hel_mean: Annotated[float | None, typer.Option(help=QUANTITIES["hel_mean"].meaning)] = None,
        hel_seq: Annotated[float | None, typer.Option(help=QUANTITIES["hel_seq"].meaning)] = None,
        hel_cross: Annotated[
            float | None, typer.Option(help=QUANTITIES["hel_cross"].meaning)
        ] = None,
        quartic_mean: Annotated[
            float | None, typer.Option(help=QUANTITIES["quartic_mean"].meaning)
        ] = None,
        bounds: Annotated[
            str | None, typer.Option(help="Comma-separated names; all when left out.")
        ] = None,
        target: Annotated[
            float | None,
            typer.Option(help="Also invert: largest T, and largest kl_max, with bound <= target."),
        ] = None,
        format: Annotated[Format, typer.Option(help="Output format.")] = Format.table,
    ) -> None:
        """Evaluate every bound at the given divergences; the least certified one is marked."""
        given = {
            "T": T,
            "kl_max": kl_max,
            "tv_max": tv_max,
            "kl_seq": kl_seq,
            "tv_seq": tv_seq,
            "chi2_max": chi2_max,
            "chi2_mean": chi2_mean,
            "hel_max": hel_max,
            "hel_mean": hel_mean,
            "hel_seq": hel_seq,
            "hel_cross": hel_cross,
            "quartic_mean": quartic_mean,
        }
        given = {name: value for name, value in given.items() if value is not None}
        try:
            chosen = parse_names(bounds)
            result = evaluate(chosen, **_needed(given, target))
            inverses: dict[str, dict[str, Inverse]] = {}
            if target is not None:
                inverses["T"] = {e.name: e for e in largest_horizon(target, chosen, **given)}
                if "T" in given:
                    inverses["kl_max"] = {e.name: e for e in largest_kl(target, chosen, **given)}
        except InputError as error:
            fail(error)
        records = [record(entry) for entry in result]
        for row in records:
            for variable, found in inverses.items():
                row[f"largest_{variable}"] = _json_number(found[row["name"]].value, "any")
        if format is Format.json:
            best = result.smallest
            document = {
                "inputs": {name: _json_number(value) for name, value in given.items()},
                "reward_range": [0, 1],
                "target": target,
                "smallest": None if best is None else best.name,
                "bounds": records,
            }
            typer.echo(json.dumps(document, indent=2, allow_nan=False))
        elif format is Format.csv:
            typer.echo(_csv(records), nl=False)
        elif format is Format.latex:
            typer.echo(_latex(result), nl=False)
        else:
            console.print(_table(result))
            if target is not None:
                console.print(_inverse_table(inverses, target))


def parse_names(text: str | None) -> list[str] | None:
    """Registry names from a comma-separated option.

    Raises:
        InputError: a name that no bound has, or none at all.
    """
    if text is None:
        return None
    names = [piece.strip() for piece in text.split(",") if piece.strip()]
    if not names:
        raise InputError("--bounds is empty; give names such as mixed-kl,unified or leave it out")
    try:
        return [registry.get(name).name for name in names]
    except KeyError as error:
        raise InputError(f"--bounds: {error.args[0]}") from error


def _needed(given: dict[str, Any], target: float | None) -> dict[str, Any]:
    if "T" not in given and target is None:
        raise InputError("--T (T) is missing; give the horizon in tokens, or --target to invert")
    if len(given) == ("T" in given):
        raise InputError("no divergence is given; give at least one, e.g. --kl-max 1e-4")
    return given


def _json_number(value: float | None, infinite: str = "infinity") -> float | str | None:
    return infinite if value is not None and math.isinf(value) else value
