"""Bounds against the horizon at delta = 1e-4, K_seq = 0.01: the papers' family and ours."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from bounds import registry
from bounds.order import orders
from bounds.registry import TRM
from figures.bound_vs_T import bound_vs_T
from paper_repro.artefact import Artefact, Check
from simulations.sweep import sweep

DELTA: Final = 1e-4
K_SEQ: Final = 0.01
#: The chain rule needs K_seq <= T delta, so T starts at K_seq/delta; powers of two hold T = 4096.
HORIZONS: Final = np.unique(
    np.r_[np.round(np.geomspace(K_SEQ / DELTA, 2**17, 60)), 2.0 ** np.arange(7, 18)]
)
#: Orders that the paper states, as exponents of T.
STATED: Final = (
    ("classical-kl-small", 2.0),
    ("pinsker-marginal-kl-small", 1.5),
    ("mixed-kl-small", 1.0),
)


def run(out: Path) -> Artefact:
    """Write ``bound_vs_T.csv`` and ``bound_vs_T.png`` into ``out``."""
    result = sweep({"T": HORIZONS, "kl_max": [DELTA], "kl_seq": [K_SEQ]})
    assert result.table is not None
    csv, png = out / "bound_vs_T.csv", out / "bound_vs_T.png"
    result.table.to_csv(csv, index=False)
    titles = {bound.name: bound.title for bound in registry.all_bounds()}
    bound_vs_T(result.table, titles).savefig(png, dpi=200)
    checks = []
    for name, exponent in STATED:
        small, _ = orders(registry.get(name).expression)
        derived = float("nan") if small is None else float(small.exponent)
        checks.append(
            Check(f"order of {name} in T", exponent, derived, 0.0, f"{TRM}, bound table", "exact")
        )
    return Artefact("bound_vs_T", "Bounds against the horizon", (csv, png), tuple(checks))
