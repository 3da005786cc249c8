"""Closed forms and inequalities for sums over positions."""

from __future__ import annotations

import sympy as sp

from bounds.checkers import FiniteSums, MinCases, SumCauchySchwarz, SumRule
from bounds.lemmas_tree import eq, le, over_positions
from bounds.proof import Step
from bounds.quantities import KL_t, T, X_t, Xbar, delta, s, t, x

LINEAR_SUM = Step(
    "sum",
    "arithmetic series",
    "Sum over positions.",
    eq(over_positions(t - 1), T * (T - 1) / 2),
    SumRule(),
)
ROOT_SUM = Step(
    "sum",
    "sum of square roots",
    "Compare the sum with T^(3/2), by induction over T.",
    le(over_positions(sp.sqrt(t - 1)), sp.Rational(2, 3) * T ** sp.Rational(3, 2)),
    SumRule(),
)
GEOMETRIC_SUM = Step(
    "sum",
    "geometric series",
    "Sum over positions.",
    eq(
        sp.sqrt(x) * sp.sqrt(over_positions((1 + x) ** (t - 1) - 1)),
        sp.sqrt((1 + x) ** T - 1 - T * x),
    ),
    SumRule(),
)
SQUARED_MINIMUM = Step(
    "squared minimum",
    "min(1, a)^2 = min(1, a^2)",
    "Square the capped divergence.",
    eq(sp.Min(1, sp.sqrt(delta / 2)) ** 2, sp.Min(1, delta / 2)),
    MinCases(delta),
)
MEAN_CHI2 = Step(
    "mean chi-square",
    "definition of Xbar",
    "Xbar is the mean of X_t over positions.",
    eq(over_positions(X_t[t]), T * Xbar),
    FiniteSums(X_t, Xbar),
)
_LATER = sp.Sum(KL_t[s], (s, t + 1, T))
SUM_CAUCHY_SCHWARZ = Step(
    "sum Cauchy-Schwarz",
    "Cauchy-Schwarz",
    "Cauchy-Schwarz over positions.",
    le(
        over_positions(sp.sqrt(X_t[t]) * sp.sqrt(_LATER)),
        sp.sqrt(over_positions(X_t[t]) * over_positions(_LATER)),
    ),
    SumCauchySchwarz(X_t, _LATER),
)
COUNT_KL = Step(
    "count",
    "each position is counted at most T - 1 times",
    "KLbar_s is counted once for every t < s.",
    le(over_positions(_LATER), (T - 1) * sp.Sum(KL_t[s], (s, 1, T))),
    FiniteSums(KL_t),
)
