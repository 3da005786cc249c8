"""What all commands share: the console, the one-line error, figure formats."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NoReturn

import typer
from rich.console import Console

from bounds.errors import InputError

#: Wide enough for the tables when standard output is not a terminal.
_PIPE_WIDTH = 150
#: Figure formats by suffix.
FIGURES = (".png", ".pdf", ".svg")


def make_console() -> Console:
    """A console for standard output as it is now (tests swap it)."""
    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    return Console(width=width, highlight=False, soft_wrap=False)


class _LazyConsole:
    """Delegates to a fresh console, so that output follows a redirected ``sys.stdout``."""

    def __getattr__(self, name: str) -> object:
        return getattr(make_console(), name)


console: Console = _LazyConsole()  # type: ignore[assignment]


def fail(message: object) -> NoReturn:
    """Print ``error: message`` on one line of standard error and exit with code 2."""
    text = " ".join(str(message).split())
    typer.echo(f"error: {text}", err=True)
    raise typer.Exit(2)


def figure_format(path: Path) -> str:
    """The figure format (png, pdf, svg) that the suffix of ``path`` names.

    Raises:
        InputError: another suffix.
    """
    suffix = path.suffix.lower()
    if suffix not in FIGURES:
        raise InputError(
            f"--figure {path.name!r} has no known suffix; use one of {', '.join(FIGURES)}, "
            "e.g. --figure out.png"
        )
    return suffix[1:]
