"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bounds.errors import InputError


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
