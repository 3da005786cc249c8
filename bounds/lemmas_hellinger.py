"""Lemmas of the Hellinger bounds: the error's weight in roots of importance ratios."""

from __future__ import annotations

import sympy as sp

from bounds.atoms import E, hel, rho, root
from bounds.checkers import (
    AffinityInduction,
    Definition,
    FiniteSums,
    Largest,
    Moments,
    PathIdentity,
    PathTriangle,
    TreeIdentity,
)
from bounds.lemmas_tree import DEVIATIONS, PRODUCT, eq, le, over_positions
from bounds.proof import Step
from bounds.quantities import F_t, Fbar, H_t, Hbar, Hcross, Hseq, T, eta_t, j, t

#: N_T and N_(t-1): roots of the products of ratios.
WHOLE = sp.Product(root[j], (j, 1, T))
PAST = sp.Product(root[j], (j, 1, t - 1))
#: The error's weight in ratios and in roots.
WEIGHT = PRODUCT - 1 - DEVIATIONS
WEIGHT_ROOTS = WHOLE**2 - 1 - over_positions(root[t] ** 2 - 1)
#: Its parts: a difference of nonnegative variables and two martingales.
DRIFT = over_positions(hel[t] * PAST)
CENTRED = root[t] - 1 + hel[t] / 2
CROSS = over_positions(2 * CENTRED * (PAST - 1))
SURPRISE = (root[t] - 1) ** 2 - hel[t]
SURPRISES = over_positions(SURPRISE)

_IDENTITY = TreeIdentity(deepest=2, roots=True)

ROOTS = (
    Step(
        "root",
        "definition of the root",
        "Write each ratio as the square of its root r_t.",
        eq(rho[t], root[t] ** 2),
        Definition(),
    ),
    Step(
        "root of product",
        "product of squares",
        "The product of squares is the square of the product N_T.",
        eq(sp.Product(root[j] ** 2, (j, 1, T)), WHOLE**2),
        PathIdentity(),
    ),
)
DECOMPOSE = Step(
    "decompose",
    "Hellinger decomposition",
    "Telescope N_T - 1 and compensate every root by its mean, 1 - h_t/2: what is left is a "
    "difference of two nonnegative variables and two martingales.",
    eq(WEIGHT_ROOTS, (WHOLE - 1) ** 2 - DRIFT + CROSS - SURPRISES),
    PathIdentity(),
)
TRIANGLE = Step(
    "triangle",
    "triangle inequality",
    "Bound the parts one by one.",
    le(
        E(sp.Abs((WHOLE - 1) ** 2 - DRIFT + CROSS - SURPRISES)),
        E((WHOLE - 1) ** 2) + E(DRIFT) + E(sp.Abs(CROSS)) + E(sp.Abs(SURPRISES)),
    ),
    PathTriangle(parts=((WHOLE - 1) ** 2, DRIFT, CROSS, SURPRISES)),
)
BALANCE = Step(
    "balance",
    "tower property",
    "The mean of sum h_t N_(t-1) is 2 - 2 E N_T, which is the mean of (N_T - 1)^2.",
    eq(E(DRIFT), E((WHOLE - 1) ** 2)),
    _IDENTITY,
)
SEQUENCE = Step(
    "sequence",
    "definition of H_seq",
    "The mean of (N_T - 1)^2 is the squared Hellinger distance of the whole laws.",
    eq(E((WHOLE - 1) ** 2), Hseq),
    _IDENTITY,
)
CROSS_RMS = Step(
    "cross mean square",
    "Cauchy-Schwarz",
    "The mean absolute value is at most the root of the mean square.",
    le(E(sp.Abs(CROSS)), sp.sqrt(E(CROSS**2))),
    Moments(CROSS),
)
CROSS_ORTHOGONAL = Step(
    "cross orthogonal",
    "orthogonality of martingale differences",
    "Cross terms vanish, so the mean square of the sum is the sum of the mean squares.",
    eq(E(CROSS**2), over_positions(E(4 * CENTRED**2 * (PAST - 1) ** 2))),
    _IDENTITY,
)
CROSS_VARIANCE = Step(
    "root variance",
    "tower property",
    "Given c_t the root has variance 1 - (1 - h_t/2)^2 = h_t - h_t^2/4.",
    eq(E(CENTRED**2 * (PAST - 1) ** 2), E((hel[t] - hel[t] ** 2 / 4) * (PAST - 1) ** 2)),
    _IDENTITY,
)
CROSS_DROP = Step(
    "drop",
    "nonnegative term dropped",
    "Leave out h_t^2/4.",
    le(E((hel[t] - hel[t] ** 2 / 4) * (PAST - 1) ** 2), E(hel[t] * (PAST - 1) ** 2)),
    PathTriangle(parts=(hel[t], (PAST - 1) ** 2)),
)
CROSS_MEAN = Step(
    "cross",
    "definition of H_cross",
    "The sum of these means is H_cross.",
    eq(over_positions(E(hel[t] * (PAST - 1) ** 2)), Hcross),
    _IDENTITY,
)
LARGEST_HEL = Step(
    "h <= eta_t",
    "definition of eta_t",
    "eta_t is the largest token squared Hellinger distance over contexts at t.",
    le(hel[t], eta_t[t]),
    Largest(hel[t], eta_t[t]),
)
RECURSION = Step(
    "affinity recursion",
    "tower property",
    "One more root multiplies the mean by 1 - h_t(c_t)/2.",
    eq(E(sp.Product(root[j], (j, 1, t))), E(PAST * (1 - hel[t] / 2))),
    _IDENTITY,
)


def _square(length: sp.Expr, key: str) -> Step:
    return Step(
        key,
        "E N^2 = 1",
        "The ratios' product has mean 1, so the mean of (N - 1)^2 is 2 - 2 E N.",
        eq(E((length - 1) ** 2), 2 - 2 * E(length)),
        _IDENTITY,
    )


def _affinity(last: sp.Expr, square: Step, key: str) -> Step:
    return Step(
        key,
        "affinities multiply, by induction",
        "By induction from N_0 = 1, E N is at least the product of 1 - eta_j/2.",
        le(square.statement.lhs, 2 - 2 * sp.Product(1 - eta_t[j] / 2, (j, 1, last))),
        AffinityInduction(square.key, RECURSION.key, LARGEST_HEL.key),
    )


PAST_SQUARE = _square(PAST, "past square")
WHOLE_SQUARE = _square(WHOLE, "whole square")
PAST_AFFINITY = _affinity(t - 1, PAST_SQUARE, "past affinity")
WHOLE_AFFINITY = _affinity(T, WHOLE_SQUARE, "whole affinity")

#: E|sum of surprises| <= 2 sum H_t
BY_MEAN = (
    Step(
        "surprise triangle",
        "triangle inequality",
        "A deviation from a mean of a nonnegative variable is at most their sum, on average.",
        le(
            E(sp.Abs(SURPRISES)),
            over_positions(E((root[t] - 1) ** 2) + E(hel[t])),
        ),
        PathTriangle(),
    ),
    Step(
        "mean root",
        "definition of H_t",
        "The mean of (r_t - 1)^2 is the mean token squared Hellinger distance.",
        eq(E((root[t] - 1) ** 2), H_t[t]),
        _IDENTITY,
    ),
    Step(
        "mean h",
        "definition of H_t",
        "So is the mean of h_t.",
        eq(E(hel[t]), H_t[t]),
        _IDENTITY,
    ),
)
#: E|sum of surprises| <= sqrt(sum F_t)
BY_SQUARE = (
    Step(
        "surprise mean square",
        "Cauchy-Schwarz",
        "The mean absolute value is at most the root of the mean square.",
        le(E(sp.Abs(SURPRISES)), sp.sqrt(E(SURPRISES**2))),
        Moments(SURPRISES),
    ),
    Step(
        "surprise orthogonal",
        "orthogonality of martingale differences",
        "Cross terms vanish, so the mean square of the sum is the sum of the mean squares.",
        eq(E(SURPRISES**2), over_positions(E(SURPRISE**2))),
        _IDENTITY,
    ),
    Step(
        "surprise variance",
        "tower property",
        "A variance is the mean square minus the squared mean.",
        eq(E(SURPRISE**2), E((root[t] - 1) ** 4 - hel[t] ** 2)),
        _IDENTITY,
    ),
    Step(
        "surprise drop",
        "nonnegative term dropped",
        "Leave out h_t^2.",
        le(E((root[t] - 1) ** 4 - hel[t] ** 2), E((root[t] - 1) ** 4)),
        PathTriangle(parts=(hel[t], root[t])),
    ),
    Step(
        "quartic",
        "definition of F_t",
        "F_t is the mean of (r_t - 1)^4.",
        eq(E((root[t] - 1) ** 4), F_t[t]),
        _IDENTITY,
    ),
)
MEAN_HEL = Step(
    "mean Hellinger",
    "definition of Hbar",
    "Hbar is the mean of H_t over positions.",
    eq(over_positions(H_t[t]), T * Hbar),
    FiniteSums(H_t, Hbar),
)
MEAN_QUARTIC = Step(
    "mean quartic",
    "definition of Fbar",
    "Fbar is the mean of F_t over positions.",
    eq(over_positions(F_t[t]), T * Fbar),
    FiniteSums(F_t, Fbar),
)
LARGEST_MEAN = Step(
    "H_t <= eta_t",
    "a mean is at most the maximum",
    "The mean of h_t is at most its largest value.",
    le(H_t[t], eta_t[t]),
    Largest(H_t[t], eta_t[t]),
)
