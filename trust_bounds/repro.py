"""``trust-bounds repro``: regenerate every paper artefact, with a manifest."""

from __future__ import annotations

import importlib
import json
import platform
import shutil
import sys
import tempfile
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.progress import track
from rich.table import Table

from bounds.errors import InputError
from paper_repro.artefact import Artefact
from simulations.models import sha256_of
from trust_bounds import __version__
from trust_bounds.common import console, fail

#: Modules of ``paper_repro`` that are artefacts, in order.
ARTEFACTS: Final = ("worked_example", "bound_vs_T", "real_log")
_LIBRARIES: Final = (
    "numpy", "scipy", "sympy", "mpmath", "pandas", "pyarrow", "matplotlib", "torch", "arviz-stats",
)  # fmt: skip


def manifest(artefacts: list[Artefact], root: Path) -> dict[str, Any]:
    """Provenance of a run: versions, hashes of inputs and outputs, paper value beside ours.

    Args:
        artefacts: results, with files below ``root``.
        root: folder the files were written into.
    """
    return {
        "tool": f"trust-bounds {__version__}",
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "versions": {name: version(name) for name in _LIBRARIES},
        "passed": all(artefact.passed for artefact in artefacts),
        "artefacts": [
            {
                "name": artefact.name,
                "title": artefact.title,
                "passed": artefact.passed,
                "inputs": {path.name: sha256_of(path) for path in artefact.inputs},
                "files": {str(path.relative_to(root)): sha256_of(path) for path in artefact.files},
                "checks": [check.to_dict() for check in artefact.checks],
            }
            for artefact in artefacts
        ],
    }


def repro(out: Path, quiet: bool = False) -> dict[str, Any]:
    """Regenerate all artefacts into ``out`` and return the manifest.

    The files appear together at the end; a failed run leaves ``out`` as it was.

    Raises:
        InputError: ``out`` is a file or cannot be made.
    """
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out} is a file; give a folder")
    try:
        out.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=".tmp-repro-", dir=out))
    except OSError as error:
        raise InputError(f"--out {out} cannot be written: {error.strerror}") from error
    try:
        artefacts = [
            importlib.import_module(f"paper_repro.{name}").run(work)
            for name in track(
                ARTEFACTS,
                description="artefacts",
                disable=quiet or not sys.stdout.isatty(),
                transient=True,
            )
        ]
        document = manifest(artefacts, work)
        (work / "manifest.json").write_text(json.dumps(document, indent=2, allow_nan=False) + "\n")
        for path in sorted(work.iterdir(), key=lambda p: p.name == "manifest.json"):
            path.replace(out / path.name)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return document


def _table(document: dict[str, Any]) -> Table:
    table = Table(title="Reproduced artefacts")
    for column in ("artefact", "what", "paper", "ours", "label", "agrees"):
        table.add_column(column, justify="right" if column in ("paper", "ours") else "left")
    for artefact in document["artefacts"]:
        for check in artefact["checks"]:
            table.add_row(
                artefact["name"],
                check["name"],
                f"{check['paper']:g}",
                f"{check['ours']:.6g}",
                check["kind"],
                "yes" if check["passed"] else "NO",
            )
        if not artefact["checks"]:
            table.add_row(artefact["name"], artefact["title"], "-", "-", "-", "nothing to compare")
    return table


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command("repro")
    def repro_command(
        out: Annotated[Path, typer.Option(help="Folder for tables, figures and manifest.json.")],
    ) -> None:
        """Regenerate the paper's tables and figures, and compare their values with ours."""
        try:
            document = repro(out)
        except InputError as error:
            fail(error)
        console.print(_table(document))
        console.print(f"wrote {out / 'manifest.json'} and the files that it lists")
        if not document["passed"]:
            typer.echo("error: some values disagree with their source; see manifest.json", err=True)
            raise typer.Exit(1)
