"""Command line of trust-bounds: one module a command, assembled in :mod:`trust_bounds.cli`."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("trust-bounds")
except PackageNotFoundError:  # run from a source tree that is not installed
    __version__ = "0+unknown"
