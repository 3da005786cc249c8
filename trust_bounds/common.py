"""What all commands share: the console, the one-line error, atomic output."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import typer
from rich.console import Console

from bounds.errors import InputError

#: Wide enough for the tables when standard output is not a terminal.
_PIPE_WIDTH = 150


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


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary file beside ``path`` that takes its place on success and vanishes on failure.

    Raises:
        InputError: the folder does not exist or cannot be written.
    """
    path = Path(path)
    folder = path.parent
    if not folder.is_dir():
        raise InputError(f"folder {folder} does not exist; create it or choose another path")
    if path.is_dir():
        raise InputError(f"{path} is a folder; give a file name")
    try:
        handle, name = tempfile.mkstemp(prefix=".tmp-", suffix="".join(path.suffixes), dir=folder)
    except OSError as error:
        raise InputError(f"cannot write in {folder}: {error.strerror}") from error
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomic(path: Path, content: bytes | str) -> None:
    """Write ``content`` to ``path`` whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)
