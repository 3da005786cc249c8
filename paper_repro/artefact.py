"""What every paper artefact returns: files, and what the paper says beside what we got."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

Kind = Literal["exact", "certified bound", "estimate", "approximation"]


@dataclass(frozen=True)
class Check:
    """One value of a paper (or of theory) beside ours.

    Attributes:
        name: what is compared.
        paper: value stated by the source.
        ours: value computed here.
        tolerance: largest absolute difference that counts as agreement: half a unit of the last
            digit that the source prints.
        source: where it is stated.
        kind: what sort of number ours is.
    """

    name: str
    paper: float
    ours: float
    tolerance: float
    source: str
    kind: Kind

    @property
    def passed(self) -> bool:
        """Whether the two agree to the digits that the source prints."""
        return math.isfinite(self.ours) and abs(self.ours - self.paper) <= self.tolerance

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready mapping, with ``passed``."""
        return {**asdict(self), "passed": self.passed}


@dataclass(frozen=True)
class Artefact:
    """A regenerated table or figure.

    Attributes:
        name: short name, also the stem of its files.
        title: one line on what it shows.
        files: paths written, tables first.
        checks: comparisons with the source; empty when the source states no value.
        inputs: files that went in.
    """

    name: str
    title: str
    files: tuple[Path, ...]
    checks: tuple[Check, ...] = ()
    inputs: tuple[Path, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether every check agrees."""
        return all(check.passed for check in self.checks)
