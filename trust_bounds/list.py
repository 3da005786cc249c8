"""``trust-bounds list``: the registry as a table (also the README's)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from rich.table import Table

from bounds import registry
from bounds.order import orders
from bounds.registry import Bound
from trust_bounds.common import console


class ListFormat(StrEnum):
    """Output formats of ``list``."""

    table = "table"
    markdown = "markdown"


def order_text(bound: Bound) -> str:
    """Derived order in T: small divergences, then, when it differs, divergences held fixed."""
    if bound.role != "bound":
        return "-"
    small, capped = orders(bound.expression)
    if small is None:
        return "-"
    return str(small) if capped is None or str(capped) == str(small) else f"{small} -> {capped}"


def formula_text(bound: Bound) -> str:
    """The formula as LaTeX; for a minimum, what it runs over."""
    if bound.role == "minimum":
        return "least of the paper's" if bound.owner == "paper" else "least of all valid bounds"
    return bound.latex


def markdown() -> str:
    """The README's table of bounds, generated from the registry."""
    lines = [
        "| name | bound on \\|Error\\| | order in T | inputs | source |",
        "|---|---|---|---|---|",
    ]
    for bound in registry.all_bounds():
        formula = formula_text(bound)
        shown = formula if bound.role == "minimum" else f"${formula}$".replace("|", r"\vert ")
        inputs = ", ".join(f"`{quantity.name}`" for quantity in bound.inputs)
        if bound.role == "minimum":
            inputs = "any"
        owner = "ours" if bound.owner == "ours" else "TRM"
        lines.append(f"| `{bound.name}` | {shown} | {order_text(bound)} | {inputs} | {owner} |")
    return "\n".join(lines) + "\n"


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command("list")
    def list_bounds(
        format: Annotated[ListFormat, typer.Option(help="Output format.")] = ListFormat.table,
    ) -> None:
        """List the registered bounds with inputs, derived order and source."""
        if format is ListFormat.markdown:
            typer.echo(markdown(), nl=False)
            return
        table = Table(title="Registered bounds on |Error|, rewards in [0, 1]")
        for column in ("name", "title", "order in T", "inputs", "source"):
            table.add_column(column, overflow="fold")
        for bound in registry.all_bounds():
            inputs = ", ".join(quantity.name for quantity in bound.inputs)
            table.add_row(
                bound.name,
                bound.title,
                order_text(bound),
                "any" if bound.role == "minimum" else inputs,
                bound.source.split(",")[0] if bound.owner == "ours" else bound.source,
            )
        console.print(table)
