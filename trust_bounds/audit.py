"""``trust-bounds audit``: measured divergences of a rollout log, bounds, Oracle, tightness."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from bounds.errors import InputError
from bounds.evaluate import REWARD_RANGE
from simulations.files import atomic_path
from trust_bounds.common import console, fail, figure_format
from trust_bounds.evaluate import parse_names

if TYPE_CHECKING:
    from simulations.audit import Audit, Estimate


def _range(low: float, high: float) -> str:
    return "-" if low != low else f"[{low:.4g}, {high:.4g}]"


def _quantities(result: Audit) -> Table:
    table = Table(title="Measured divergences (KL is KL(roll || theta))")
    for column in (
        "quantity",
        "value",
        "unit",
        f"{result.confidence:.0%} interval",
        "label",
        "note",
    ):
        table.add_column(column, justify="right" if column == "value" else "left", overflow="fold")
    for entry in result.quantities:
        table.add_row(
            entry.name,
            f"{entry.value:.4g}",
            entry.unit,
            _range(entry.low, entry.high),
            entry.label,
            entry.note,
        )
    return table


def _bounds(result: Audit, names: list[str] | None) -> Table:
    rows = [e for e in result.bounds if names is None or e.name in names]
    usable = [
        e for e in rows if e.value is not None and e.status == "estimate" and e.form != "small"
    ]
    best = min(
        (e for e in usable if not e.name.startswith("unified")),
        key=lambda e: e.value if e.value is not None else float("inf"),
        default=None,
    )
    table = Table(
        title=f"Bounds on |Error| at T = {result.longest}, rewards in [0, 1]",
        caption="estimate: the inputs are estimated from this log, so the value is no certificate. "
        "tightness = Oracle / bound. * = least.",
        caption_justify="left",
    )
    for column in ("", "bound", "value", "interval", "vacuous", "label", "tightness", "interval"):
        table.add_column(column, justify="right" if column in ("value", "tightness") else "left")
    for entry in rows:
        if entry.value is None:
            table.add_row("", entry.name, "-", entry.note, "-", "missing", "-", "-", style="dim")
            continue
        table.add_row(
            "*" if entry is best else "",
            entry.name,
            f"{entry.value:.5g}",
            _range(entry.low, entry.high),
            "yes" if entry.vacuous else "no",
            entry.status,
            f"{entry.tightness:.3g}",
            _range(entry.tightness_low, entry.tightness_high),
            style="bold" if entry is best else None,
        )
    return table


def _oracle_line(oracle: Estimate, result: Audit) -> str:
    shape = "not fitted" if result.khat != result.khat else f"{result.khat:.2f}"
    return (
        f"Oracle (worst reward), estimate: {oracle.value:.4g} {_range(oracle.low, oracle.high)}; "
        f"Pareto k-hat {shape} (threshold {result.khat_threshold:.2f})"
    )


def _certificate_lines(result: Audit) -> list[str]:
    found = result.certificate
    reach = " (vacuous: above the reward range)" if found.value > REWARD_RANGE else ""
    head = f"Oracle (worst reward), {found.label}: <= {found.value:.4g}{reach}, if"
    return [head, *(f"  - {text}" for text in found.assumptions)]


def _draw(result: Audit, path: Path, kind: str) -> None:
    from figures.audit import audit_figure

    engines = " vs ".join(
        result.metadata[key].split(" (")[0]
        for key in ("trust_bounds.rollout", "trust_bounds.train")
        if key in result.metadata
    )
    title = f"{engines or result.log}: {result.sequences} sequences × {result.longest} tokens"
    with atomic_path(path) as temporary:
        audit_figure(title=title, **result.figure_arguments()).savefig(temporary, format=kind)


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command("audit")
    def audit_command(
        file: Annotated[Path, typer.Argument(help="Rollout log: .parquet or .jsonl.")],
        as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
        figure: Annotated[Path | None, typer.Option(help="Also draw: .png, .pdf or .svg.")] = None,
        seed: Annotated[int, typer.Option(help="Seed of the bootstrap.")] = 0,
        bootstrap: Annotated[int, typer.Option(help="Bootstrap resamples.")] = 2000,
        confidence: Annotated[
            float, typer.Option(help="Level of the intervals and of the certificate.")
        ] = 0.95,
        max_length: Annotated[
            int | None,
            typer.Option(help="Longest possible response (generation limit), for the certificate."),
        ] = None,
        ratio_floor: Annotated[
            float,
            typer.Option(help="No ratio theta/roll can be below this; sharpens the certificate."),
        ] = 0.0,
        bounds: Annotated[str | None, typer.Option(help="Only these, comma-separated.")] = None,
    ) -> None:
        """Measure a rollout log's divergences and every bound at them, with intervals."""
        from simulations.audit import audit

        try:
            names = parse_names(bounds)
            if seed < 0:
                raise InputError(f"--seed is {seed}; give a whole number >= 0")
            kind = figure_format(figure) if figure is not None else ""
            result = audit(
                file,
                seed=seed,
                n_boot=bootstrap,
                confidence=confidence,
                max_length=max_length,
                ratio_floor=ratio_floor,
            )
            if figure is not None:
                _draw(result, figure, kind)
        except InputError as error:
            fail(error)
        if as_json:
            typer.echo(json.dumps(result.to_dict(), indent=2, allow_nan=False))
            return
        engines = ", ".join(f"{k.split('.')[-1]}: {v}" for k, v in result.metadata.items())
        console.print(
            f"{result.log}: {result.sequences} sequences, {result.tokens} tokens, "
            f"T = {result.longest}. {engines}"
        )
        console.print(_quantities(result))
        console.print(_bounds(result, names))
        console.print(_oracle_line(result.oracle, result))
        for line in _certificate_lines(result):
            console.print(line)
        for warning in result.warnings:
            console.print(f"note: {warning}")
