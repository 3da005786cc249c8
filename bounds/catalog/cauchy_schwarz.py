"""Cauchy-Schwarz, max-free: means over roll contexts only, no maximum over contexts."""

from __future__ import annotations

import sympy as sp

from bounds.derivations import cauchy_schwarz
from bounds.quantities import KL_t, Kseq, T, X_t, Xbar, s, t
from bounds.registry import OURS, Bound

_DIRECTION = "KL(roll || theta); chi2(theta || roll)"

FULL = Bound(
    name="cauchy-schwarz",
    title="Cauchy-Schwarz, max-free",
    expression=sp.Sum(sp.sqrt(X_t[t] * sp.Sum(KL_t[s], (s, t + 1, T)) / 2), (t, 1, T)),
    owner="ours",
    source=f"{OURS}: max-free Cauchy-Schwarz bound",
    assumptions=("roll has mass wherever theta has",),
    kl_direction=_DIRECTION,
    proof=cauchy_schwarz(summed=False),
)
TWO_MEANS = Bound(
    name="cauchy-schwarz-means",
    title="Cauchy-Schwarz, two means",
    expression=sp.sqrt(T * Xbar * (T - 1) * Kseq / 2),
    owner="ours",
    source=f"{OURS}: max-free Cauchy-Schwarz bound, summed over positions",
    assumptions=("roll has mass wherever theta has",),
    kl_direction=_DIRECTION,
    proof=cauchy_schwarz(summed=True),
)
ENTRIES = (FULL, TWO_MEANS)
