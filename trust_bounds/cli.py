"""``trust-bounds``: derive, evaluate, sweep, audit, repro."""

from __future__ import annotations

import importlib
import sys
from typing import Annotated, Any

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


#: Base class of what typer raises for a bad option (its own copy of click's, or click's).
_UsageError: Any = typer.BadParameter.__bases__[0]


def main() -> None:
    """Entry point of the ``trust-bounds`` command: bad options are one line and exit code 2."""
    try:
        code = app(standalone_mode=False)
    except _UsageError as error:
        if len(sys.argv) == 1:
            error.show()
            raise SystemExit(0) from None
        message = " ".join(error.format_message().split())
        typer.echo(f"error: {message} (see trust-bounds --help)", err=True)
        raise SystemExit(2) from None
    except typer.Abort:
        raise SystemExit(130) from None
    raise SystemExit(code if isinstance(code, int) else 0)
