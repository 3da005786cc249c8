"""``trust-bounds``: derive, evaluate, sweep, audit, repro."""

from __future__ import annotations

import importlib
from typing import Annotated

import typer

from trust_bounds import __version__

app = typer.Typer(
    name="trust-bounds",
    help="Derive, evaluate and check bounds on the cost of off-policy mismatch in LLM RL.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

COMMANDS = ("evaluate", "sweep", "derive", "audit", "repro", "list")


def _version(value: bool) -> None:
    if value:
        typer.echo(f"trust-bounds {__version__}")
        raise typer.Exit()


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Bounds on |Error| = |J(theta) - J(roll) - L'|, for rewards in [0, 1]."""


for _name in COMMANDS:
    importlib.import_module(f"trust_bounds.{_name}").register(app)


def main() -> None:
    """Entry point of the ``trust-bounds`` command."""
    app()
