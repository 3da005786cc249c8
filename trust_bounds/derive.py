"""``trust-bounds derive``: the proof of a bound, step by step, each step checked by machine."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bounds import registry
from bounds.atoms import MEANING
from bounds.latex import plain, proof_latex, to_latex
from bounds.order import orders
from bounds.proof import CheckedStep, ProofReport
from bounds.registry import Bound
from trust_bounds.common import console, fail

_COLOUR = {"checked": "green", "refuted": "bold red", "assumed": "yellow"}


class DeriveFormat(StrEnum):
    """Output formats of ``derive``."""

    text = "text"
    latex = "latex"
    json = "json"


def verify(bound: Bound) -> ProofReport:
    """Build and check the proof of ``bound``.

    Raises:
        KeyError: the registry entry has no proof.
    """
    if bound.proof is None:
        raise KeyError(f"{bound.name} has no derivation")
    return bound.proof(bound).verify()


def summary(report: ProofReport) -> str:
    """``12 checked, 0 assumed, 0 refuted``."""
    return ", ".join(f"{report.count(s)} {s}" for s in ("checked", "assumed", "refuted"))


def _render(report: ProofReport) -> RenderableType:
    bound = report.bound
    parts: list[RenderableType] = [
        Text(f"{bound.title} ({bound.name})", style="bold"),
        Text(f"{_relation(report)}"),
        Text(f"source: {bound.source}"),
    ]
    if bound.assumptions:
        parts.append(Text(f"assumes: {'; '.join(bound.assumptions)}"))
    parts.append(Text("setting: rewards in [0, 1]; E_roll is the mean over sequences from roll"))
    for item in report.steps:
        parts.append(_render_step(item))
    small, capped = orders(bound.expression)
    if small is not None and capped is not None:
        parts.append(
            Text(
                f"\norder in T (limit of log B / log T): {small} for small divergences, "
                f"{capped} with divergences fixed"
            )
        )
    symbols = symbols_used(report)
    if symbols:
        parts.append(Text("\nsymbols of the proof:"))
        parts += [Text(f"  {symbol}: {meaning}") for symbol, meaning in symbols]
    parts.append(Text(f"\n{summary(report)}", style="bold"))
    return Group(*parts)


def symbols_used(report: ProofReport) -> list[tuple[str, str]]:
    """Auxiliary symbols that occur in the proof, with their meaning."""
    used = {str(symbol) for item in report.steps for symbol in item.step.statement.free_symbols}
    return [(name, meaning) for name, (_, meaning) in MEANING.items() if name in used]


def _relation(report: ProofReport) -> str:
    return plain(report.steps[-1].step.statement)


def _render_step(item: CheckedStep) -> Text:
    step, result = item.step, item.result
    text = Text(f"\n{item.number}. {step.text}\n")
    text.append(f"   lemma: {step.lemma}\n")
    text.append(f"   {plain(step.statement)}\n")
    text.append(f"   {result.status}", style=_COLOUR[result.status])
    how = "; ".join(part for part in (result.method, result.scope) if part and part != "none")
    if how:
        text.append(f" ({how})")
    if result.detail:
        text.append(f"\n   {result.detail}")
    return text


def as_dict(report: ProofReport) -> dict[str, Any]:
    """The report as plain data for JSON."""
    bound = report.bound
    small, capped = orders(bound.expression)
    return {
        "name": bound.name,
        "title": bound.title,
        "expression": str(bound.expression),
        "latex": to_latex(bound.expression),
        "order_small": None if small is None else str(small),
        "order_capped": None if capped is None else str(capped),
        "checked": report.count("checked"),
        "assumed": report.count("assumed"),
        "refuted": report.count("refuted"),
        "steps": [
            {
                "number": item.number,
                "text": item.step.text,
                "lemma": item.step.lemma,
                "statement": plain(item.step.statement),
                "latex": to_latex(item.step.statement),
                "status": item.result.status,
                "method": item.result.method,
                "scope": item.result.scope,
                "detail": item.result.detail,
            }
            for item in report.steps
        ],
    }


def _all_reports(chosen: DeriveFormat) -> bool:
    """Verify every proof; print one line per bound, or all of it as JSON. Whether all hold."""
    reports = [verify(bound) for bound in registry.all_bounds()]
    if chosen is DeriveFormat.json:
        typer.echo(json.dumps([as_dict(report) for report in reports], indent=2))
    elif chosen is DeriveFormat.latex:
        fail("--all has no LaTeX form; derive one bound at a time")
    else:
        table = Table(title="Derivations")
        for column in ("name", "steps", "checked", "assumed", "refuted"):
            table.add_column(column, justify="left" if column == "name" else "right")
        for report in reports:
            counts = [report.count("checked"), report.count("assumed"), report.count("refuted")]
            table.add_row(report.bound.name, str(len(report.steps)), *map(str, counts))
        console.print(table)
    return all(report.ok for report in reports)


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command("derive")
    def derive(
        name: Annotated[str | None, typer.Argument(help="Bound, e.g. adaptive.")] = None,
        format: Annotated[DeriveFormat, typer.Option(help="Output format.")] = DeriveFormat.text,
        every: Annotated[
            bool, typer.Option("--all", help="Check every proof; one line per bound.")
        ] = False,
    ) -> None:
        """Print the derivation of a bound, each step with its machine check.

        Exit code 1 when a step is refuted.
        """
        if every == (name is not None):
            fail("give the name of one bound, or --all")
        if name is None:
            raise typer.Exit(0 if _all_reports(format) else 1)
        try:
            report = verify(registry.get(name))
        except KeyError as error:
            fail(error.args[0])
        if format is DeriveFormat.json:
            typer.echo(json.dumps(as_dict(report), indent=2))
        elif format is DeriveFormat.latex:
            typer.echo(proof_latex(report), nl=False)
        else:
            console.print(_render(report))
        raise typer.Exit(0 if report.ok else 1)
