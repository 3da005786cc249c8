"""One file per theorem; each exports ``ENTRIES``. The minima over the family are made here."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import sympy as sp

from bounds.derivations import minimum
from bounds.registry import OURS, TRM, Bound

#: Display order of the theorem files; a file that is not listed comes after these.
MODULES: Final[tuple[str, ...]] = (
    "classical",
    "pinsker_marginal",
    "mixed",
    "coupling",
    "adaptive",
    "martingale",
    "square_root",
    "hellinger",
    "cauchy_schwarz",
    "oracle",
)


def sharpen(entry: Bound) -> Bound:
    """The range-constant version of a member of the TRM family: half of it.

    Rewards in [0, 1] have range 1, so ``|g_t(c)| <= tv_t(c)`` where the paper has ``2 tv_t(c)``
    (for Adaptive, the future's term moves by at most TV rather than 2 TV); each is proven in full
    by ``trust-bounds derive``.
    """
    return replace(
        entry,
        name=f"{entry.name}-sharp",
        title=f"{entry.title}, range constant",
        expression=entry.expression / 2,
        owner="ours",
        source=f"{OURS}: range constant applied to {entry.name}",
        form="sharp",
        aliases=(),
    )


def minima(entries: tuple[Bound, ...]) -> tuple[Bound, ...]:
    """``unified`` (least of the paper's) and ``unified-ours`` (least of all valid ones)."""
    paper = [e for e in entries if e.role == "bound" and e.owner == "paper" and e.form == "full"]
    valid = [e for e in entries if e.role == "bound"]

    def least(name: str, title: str, source: str, members: list[Bound]) -> Bound:
        return Bound(
            name=name,
            title=title,
            expression=sp.Min(*[m.expression for m in members], evaluate=False),
            owner="paper" if name == "unified" else "ours",
            source=source,
            assumptions=("minimum over the members whose inputs are present",),
            role="minimum",
            members=tuple(m.name for m in members),
            proof=minimum,
        )

    return (
        least("unified", "Unified", f"{TRM}, unified bound", paper),
        least("unified-ours", "Unified, ours", f"{OURS}: least of all valid bounds", valid),
    )
