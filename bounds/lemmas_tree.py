"""Lemmas about one pair of autoregressive laws: identities verified on the symbolic tree."""

from __future__ import annotations

import sympy as sp

from bounds.atoms import B, E, Error, G, KLd, KLf, R, chi, rho
from bounds.checkers import (
    Definition,
    Largest,
    Moments,
    PathIdentity,
    PathTriangle,
    ProductInduction,
    TreeIdentity,
    Triangle,
)
from bounds.proof import Step
from bounds.quantities import D_t, KL_t, Kseq, T, X_t, ell_t, j, s, t, x, x_t

#: Product of all ratios, and the sum of their deviations.
PRODUCT = sp.Product(rho[j], (j, 1, T))
DEVIATIONS = sp.Sum(rho[t] - 1, (t, 1, T))
#: M_{t-1}, the product of the ratios before position t.
PAST = sp.Product(rho[j], (j, 1, t - 1))
FUTURE = sp.Product(rho[j], (j, t + 1, T))
#: W in its two forms.
W_PAST = sp.Sum((rho[t] - 1) * (PAST - 1), (t, 1, T))
W_FUTURE = sp.Sum((rho[t] - 1) * (FUTURE - 1), (t, 1, T))


def eq(lhs: sp.Expr, rhs: sp.Expr) -> sp.Basic:
    """``lhs = rhs``, never evaluated."""
    return sp.Eq(lhs, rhs, evaluate=False)


def le(lhs: sp.Expr, rhs: sp.Expr) -> sp.Basic:
    """``lhs <= rhs``, never evaluated."""
    return sp.Le(lhs, rhs, evaluate=False)


def over_positions(body: sp.Expr) -> sp.Sum:
    """``sum_{t=1}^T body``."""
    return sp.Sum(body, (t, 1, T))


PERFORMANCE_DIFFERENCE = Step(
    "difference",
    "performance difference",
    "The error is the sum over positions of how much the mean of g_t moves when the law of the "
    "context changes from roll's to theta's.",
    eq(Error, over_positions(G[t])),
    TreeIdentity(),
)
TRIANGLE = Step(
    "triangle",
    "triangle inequality",
    "Bound the sum term by term.",
    le(sp.Abs(over_positions(G[t])), over_positions(sp.Abs(G[t]))),
    Triangle(G),
)
ERROR_BY_RATIOS = Step(
    "ratios",
    "change of measure",
    "Under roll the error is the mean of the reward times (product of ratios - 1 - sum of ratio "
    "deviations).",
    eq(Error, E(R * (PRODUCT - 1 - DEVIATIONS))),
    TreeIdentity(),
)
TELESCOPE_FUTURE = Step(
    "telescope",
    "telescoping identity",
    "Telescope the product of ratios from the last position to the first.",
    eq(PRODUCT - 1 - DEVIATIONS, W_FUTURE),
    PathIdentity(),
)
TELESCOPE_PAST = Step(
    "telescope",
    "telescoping identity",
    "Telescope the product of ratios from the first position to the last.",
    eq(PRODUCT - 1 - DEVIATIONS, W_PAST),
    PathIdentity(),
)
TOWER = Step(
    "tower",
    "tower property",
    "Condition term t on c_(t+1): the future factor becomes B_t = E_theta[R | c_(t+1)] - "
    "E_roll[R | c_(t+1)].",
    eq(E(R * W_FUTURE), over_positions(E((rho[t] - 1) * B[t]))),
    TreeIdentity(),
)
PATH_TRIANGLE = Step(
    "triangle",
    "triangle inequality",
    "Bound the sum term by term, inside the expectation.",
    le(
        sp.Abs(over_positions(E((rho[t] - 1) * B[t]))),
        over_positions(E(sp.Abs(rho[t] - 1) * sp.Abs(B[t]))),
    ),
    PathTriangle(),
)
SPLIT = Step(
    "split",
    "triangle inequality",
    "Separate the product of ratios from the sum of their deviations.",
    le(
        sp.Abs(E(R * (PRODUCT - 1 - DEVIATIONS))),
        sp.Abs(E(R * (PRODUCT - 1))) + sp.Abs(E(R * DEVIATIONS)),
    ),
    PathTriangle(),
)
MEAN_DEVIATION = Step(
    "deviation",
    "total variation by ratios",
    "The mean absolute deviation of a ratio is twice the mean token total variation.",
    eq(E(sp.Abs(rho[t] - 1)), 2 * D_t[t]),
    TreeIdentity(),
)
SECOND_MOMENT = Step(
    "chi-square",
    "definition of X_t",
    "The second moment of a ratio's deviation is the mean token chi-square.",
    eq(E((rho[t] - 1) ** 2), X_t[t]),
    TreeIdentity(),
)
KL_CHAIN_CONTEXT = Step(
    "chain rule",
    "chain rule of KL",
    "The KL of the context laws is the sum of the mean token KLs before t.",
    eq(KLd[t], sp.Sum(KL_t[s], (s, 1, t - 1))),
    TreeIdentity(),
)
KL_CHAIN_FUTURE = Step(
    "chain rule",
    "chain rule of KL, tower property",
    "The mean KL of the future laws is the sum of the mean token KLs after t.",
    eq(E(KLf[t]), sp.Sum(KL_t[s], (s, t + 1, T))),
    TreeIdentity(),
)
KL_CHAIN_SEQUENCE = Step(
    "whole chain",
    "chain rule of KL",
    "The mean token KLs add up to the KL of the whole sequences' laws.",
    eq(sp.Sum(KL_t[s], (s, 1, T)), Kseq),
    TreeIdentity(),
)


def zero_mean(body: sp.Expr) -> Step:
    """``E_roll[body] = 0``."""
    return Step(
        "zero mean",
        "martingale differences",
        "Every term has mean zero given its context: E_roll[rho_t | c_t] = 1.",
        eq(E(body), 0),
        TreeIdentity(),
    )


def root_mean_square(body: sp.Expr) -> Step:
    """``E|body| <= sqrt(E body^2)``."""
    return Step(
        "root mean square",
        "Cauchy-Schwarz",
        "The mean absolute value is at most the root of the mean square.",
        le(E(sp.Abs(body)), sp.sqrt(E(body**2))),
        Moments(body),
    )


ORTHOGONAL_DEVIATIONS = Step(
    "orthogonal",
    "orthogonality of martingale differences",
    "Cross terms vanish, so the mean square of the sum is the sum of the mean squares.",
    eq(E(DEVIATIONS**2), over_positions(E((rho[t] - 1) ** 2))),
    TreeIdentity(),
)
ORTHOGONAL_INCREMENTS = Step(
    "orthogonal",
    "orthogonality of martingale differences",
    "Cross terms vanish, so the mean square of W is the sum of the increments' mean squares.",
    eq(E(W_PAST**2), over_positions(E((rho[t] - 1) ** 2 * (PAST - 1) ** 2))),
    TreeIdentity(),
)
CONDITIONAL_CHI2 = Step(
    "conditional",
    "tower property",
    "Condition on c_t: the past product is fixed and (rho_t - 1)^2 averages to chi_t(c_t).",
    eq(E((rho[t] - 1) ** 2 * (PAST - 1) ** 2), E(chi[t] * (PAST - 1) ** 2)),
    TreeIdentity(),
)
LARGEST_CHI2 = Step(
    "chi <= x_t",
    "definition of x_t",
    "x_t is the largest token chi-square over contexts at t.",
    le(chi[t], x_t[t]),
    Largest(chi[t], x_t[t]),
)
PAST_VARIANCE = Step(
    "variance",
    "martingale",
    "M_(t-1) has mean 1, so the mean square of M_(t-1) - 1 is E[M_(t-1)^2] - 1.",
    eq(E((PAST - 1) ** 2), E(PAST**2) - 1),
    TreeIdentity(),
)
SQUARE_RECURSION = Step(
    "square recursion",
    "tower property",
    "One more ratio multiplies the square by 1 + chi_t(c_t) on average.",
    eq(E(sp.Product(rho[j], (j, 1, t)) ** 2), E(PAST**2 * (1 + chi[t]))),
    TreeIdentity(),
)
PAST_SQUARE = Step(
    "past square",
    "induction over positions",
    "By induction from M_0 = 1, E[M_(t-1)^2] is at most the product of 1 + x_j.",
    le(E(PAST**2), sp.Product(1 + x_t[j], (j, 1, t - 1))),
    ProductInduction("square recursion", "chi <= x_t"),
)
UNIFORM_CHI2 = Step(
    "x_t <= x",
    "definition of x",
    "x is the largest x_t.",
    le(x_t[t], x),
    Largest(x_t[t], x),
)
LOG_RATIO = Step(
    "log-ratio",
    "definition of the log-ratio",
    "Write each ratio by its logarithm, as logs store it.",
    eq(rho[t], sp.exp(ell_t[t])),
    Definition(),
)
CAUCHY_SCHWARZ = Step(
    "Cauchy-Schwarz",
    "Cauchy-Schwarz",
    "Separate the ratio's deviation from the future's KL under roll.",
    le(
        E(sp.Abs(rho[t] - 1) * sp.sqrt(KLf[t])),
        sp.sqrt(E((rho[t] - 1) ** 2) * E(KLf[t])),
    ),
    Moments(rho[t] - 1, KLf[t]),
)
