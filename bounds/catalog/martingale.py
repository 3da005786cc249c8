"""Martingale chi-square bound: the error's worst case is a sum of orthogonal increments."""

from __future__ import annotations

import sympy as sp

from bounds.derivations import martingale
from bounds.quantities import T, j, t, x, x_t
from bounds.registry import OURS, Bound

_HALF = sp.Rational(1, 2)

UNIFORM = Bound(
    name="martingale-chi2",
    title="Martingale chi-square",
    expression=_HALF * sp.sqrt((1 + x) ** T - 1 - T * x),
    owner="ours",
    source=f"{OURS}: martingale chi-square bound",
    assumptions=("roll has mass wherever theta has",),
    kl_direction="none: chi2(theta || roll)",
    proof=martingale(uniform=True),
)
POSITIONWISE = Bound(
    name="martingale-chi2-positionwise",
    title="Martingale chi-square, position-wise",
    expression=_HALF
    * sp.sqrt(sp.Sum(x_t[t] * (sp.Product(1 + x_t[j], (j, 1, t - 1)) - 1), (t, 1, T))),
    owner="ours",
    source=f"{OURS}: martingale chi-square bound with per-position maxima",
    form="position-wise",
    assumptions=("roll has mass wherever theta has",),
    kl_direction="none: chi2(theta || roll)",
    proof=martingale(uniform=False),
)
ENTRIES = (UNIFORM, POSITIONWISE)
