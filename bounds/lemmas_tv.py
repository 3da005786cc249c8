"""Lemmas about total variation and KL: duality, Pinsker, coupling, data processing, maxima."""

from __future__ import annotations

import sympy as sp

from bounds.atoms import (
    B,
    E,
    G,
    Kfut,
    KLd,
    KLf,
    R,
    SupR,
    TVd,
    TVf,
    Vfut,
    gap_d,
    gap_f,
    gap_seq,
    gap_tok,
    gmax,
    kl_tok,
    klb_d,
    klb_f,
    klb_seq,
    klb_tok,
)
from bounds.checkers import (
    BernoulliPinsker,
    ChainStep,
    CouplingStep,
    EventSplit,
    Induction,
    Largest,
    LogSum,
    Marginal,
    MeanBelowMax,
    TreeIdentity,
    UnitTV,
    Vertices,
)
from bounds.lemmas_tree import PRODUCT, eq, le
from bounds.proof import Step
from bounds.quantities import KL_t, Kseq, T, TVseq, delta, delta_t, eps, eps_t, s, t

_HALF = sp.Rational(1, 2)
_F = sp.Symbol("F_m", nonnegative=True)

DUALITY = Step(
    "duality",
    "total variation duality",
    "A mean moves by at most 2 ||f||_inf TV when the law changes.",
    le(sp.Abs(G[t]), 2 * gmax[t] * TVd[t]),
    Vertices(G[t], -_F, _F, ((TVd[t], _HALF),), scale=gmax[t]),
)


def advantage(sharp: bool) -> Step:
    """``|g_t(c)| <= 2 tv_t`` from ``|A| <= 1``, or ``<= tv_t`` from rewards of range 1."""
    if sharp:
        return Step(
            "advantage",
            "range constant",
            "g_t(c) = sum_y (pi_theta - pi_roll)(y|c) Q_t(c,y) with Q in [0, 1]: it is at most the "
            "range, 1, times tv_t(c).",
            le(gmax[t], eps_t[t]),
            Vertices(gmax[t], sp.S.Zero, sp.S.One, ((eps_t[t], _HALF),), absolute=True, slack=True),
        )
    return Step(
        "advantage",
        "advantage bound",
        "g_t(c) = sum_y (pi_theta - pi_roll)(y|c) A_t(c,y) with |A| <= 1.",
        le(gmax[t], 2 * eps_t[t]),
        Vertices(
            gmax[t], sp.S.NegativeOne, sp.S.One, ((eps_t[t], _HALF),), absolute=True, slack=True
        ),
    )


def future_reward(sharp: bool) -> Step:
    """``|B_t| <= 2 TV`` from ``|R| <= 1``, or ``<= TV`` from rewards in [0, 1]."""
    low, factor = (sp.S.Zero, 1) if sharp else (sp.S.NegativeOne, 2)
    return Step(
        "reward",
        "range constant" if sharp else "total variation duality",
        "The reward has range 1, so its mean moves by at most the future's total variation."
        if sharp
        else "|R| <= 1, so its mean moves by at most twice the future's total variation.",
        le(sp.Abs(B[t]), factor * TVf[t]),
        Vertices(B[t], low, sp.S.One, ((TVf[t], _HALF),)),
    )


WHOLE_REWARD = Step(
    "whole reward",
    "range constant",
    "E_roll[R (product of ratios - 1)] is the reward's mean under theta minus that under roll.",
    le(sp.Abs(E(R * (PRODUCT - 1))), TVseq),
    Vertices(E(R * (PRODUCT - 1)), sp.S.Zero, sp.S.One, ((TVseq, _HALF),)),
)


def worst_reward(body: sp.Expr, attained: bool = False) -> Step:
    """``|E[R body]| <= E|body|/2`` when ``E body = 0``; attained, the supremum over R equals it."""
    error, half = sp.Abs(E(R * body)), E(sp.Abs(body)) / 2
    supremum = SupR(error)
    return Step(
        "worst reward",
        "worst reward",
        "The mean is zero, so the worst reward is the indicator of the positive part, and it "
        "attains half the mean absolute value."
        if attained
        else "The mean is zero, so the worst reward is the indicator of the positive part: half "
        "the mean absolute value.",
        eq(supremum, half) if attained else le(error, half),
        Vertices(
            E(R * body),
            sp.S.Zero,
            sp.S.One,
            ((E(sp.Abs(body)), sp.S.One),),
            supremum=supremum if attained else None,
            zero_mean=("zero mean", body),
        ),
    )


def pinsker(tv: sp.Expr, gap: sp.Expr, coarse: sp.Expr, kl: sp.Expr, tag: str) -> tuple[Step, ...]:
    """``tv <= sqrt(kl/2)`` in three steps: event, two-outcome Pinsker, log-sum."""
    return (
        Step(
            f"event {tag}",
            "total variation by an event",
            "Total variation is attained by the event A where roll's mass exceeds theta's.",
            eq(tv, gap),
            EventSplit(tv, gap),
        ),
        Step(
            f"pinsker {tag}",
            "Pinsker, two outcomes",
            "Pinsker for the two-outcome law of A.",
            le(gap, sp.sqrt(coarse / 2)),
            BernoulliPinsker(gap, coarse),
        ),
        Step(
            f"log-sum {tag}",
            "log-sum inequality",
            "Merging outcomes cannot raise KL (data processing).",
            le(coarse, kl),
            LogSum(coarse, kl),
        ),
    )


PINSKER_TOKEN = (
    *pinsker(eps_t[t], gap_tok[t], klb_tok[t], kl_tok[t], "token"),
    Step(
        "kl <= delta_t",
        "definition of delta_t",
        "delta_t is the largest token KL over contexts at t.",
        le(kl_tok[t], delta_t[t]),
        Largest(kl_tok[t], delta_t[t]),
    ),
)
PINSKER_CONTEXT = pinsker(TVd[t], gap_d[t], klb_d[t], KLd[t], "context")
PINSKER_FUTURE = pinsker(TVf[t], gap_f[t], klb_f[t], KLf[t], "future")
PINSKER_SEQUENCE = pinsker(TVseq, gap_seq, klb_seq, Kseq, "sequence")

MEAN_KL = Step(
    "mean <= max",
    "mean <= max",
    "A mean over contexts is at most the largest value.",
    le(KL_t[t], delta_t[t]),
    MeanBelowMax(KL_t[t], delta_t[t]),
)
LARGEST_TV = Step(
    "eps_t <= eps",
    "definition of epsilon",
    "epsilon is the largest epsilon_t.",
    le(eps_t[t], eps),
    Largest(eps_t[t], eps),
)
LARGEST_KL = Step(
    "delta_t <= delta",
    "definition of delta",
    "delta is the largest delta_t.",
    le(delta_t[t], delta),
    Largest(delta_t[t], delta),
)


def unit(tv: sp.Expr, tag: str) -> Step:
    """``tv <= 1``."""
    return Step(f"unit {tag}", "TV <= 1", "Total variation is at most 1.", le(tv, 1), UnitTV(tv))


UNIT_TOKEN = unit(eps_t[t], "token")
UNIT_CONTEXT = unit(TVd[t], "context")
UNIT_FUTURE = unit(TVf[t], "future")
UNIT_SEQUENCE = unit(TVseq, "sequence")

MARGINAL = Step(
    "marginal",
    "data processing",
    "The context is a function of the whole sequence, so its total variation is no larger.",
    le(TVd[t], TVseq),
    Marginal(TVd[t], TVseq),
)
COUPLING_CONTEXT = (
    Step(
        "same prompt",
        "coupling, base",
        "Both policies see the same prompts.",
        eq(TVd[1], 0),
        TreeIdentity(),
    ),
    Step(
        "one token",
        "coupling, one token",
        "One more token adds at most the largest token total variation.",
        le(TVd[t + 1], TVd[t] + eps_t[t]),
        CouplingStep(TVd[t + 1], TVd[t], eps_t[t]),
    ),
    Step(
        "coupling",
        "coupling",
        "By induction, contexts differ by at most the sum of what came before.",
        le(TVd[t], sp.Sum(eps_t[s], (s, 1, t - 1))),
        Induction("same prompt", "one token", TVd, forward=True),
    ),
)
COUPLING_FUTURE = (
    Step(
        "V largest",
        "definition of V_t",
        "V_t is the largest total variation of the future over contexts c_(t+1).",
        le(TVf[t], Vfut[t]),
        Largest(TVf[t], Vfut[t]),
    ),
    Step(
        "V end", "coupling, base", "Nothing follows the last token.", eq(Vfut[T], 0), TreeIdentity()
    ),
    Step(
        "V token",
        "coupling, one token",
        "One more token adds at most the largest token total variation.",
        le(Vfut[t - 1], Vfut[t] + eps_t[t]),
        CouplingStep(Vfut[t - 1], eps_t[t], Vfut[t]),
    ),
    Step(
        "V sum",
        "coupling",
        "By induction from the end, futures differ by at most the sum of what is to come.",
        le(Vfut[t], sp.Sum(eps_t[s], (s, t + 1, T))),
        Induction("V end", "V token", Vfut, forward=False),
    ),
)
CHAIN_FUTURE = (
    Step(
        "K largest",
        "definition of K_t",
        "K_t is the largest KL of the future over contexts c_(t+1).",
        le(KLf[t], Kfut[t]),
        Largest(KLf[t], Kfut[t]),
    ),
    Step(
        "K end",
        "chain rule, base",
        "Nothing follows the last token.",
        eq(Kfut[T], 0),
        TreeIdentity(),
    ),
    Step(
        "K token",
        "chain rule, one token",
        "The chain rule adds the token's KL, at most delta_t.",
        le(Kfut[t - 1], Kfut[t] + delta_t[t]),
        ChainStep(Kfut[t - 1], delta_t[t], Kfut[t]),
    ),
    Step(
        "K sum",
        "chain rule of KL",
        "By induction from the end, the future's KL is at most the sum of what is to come.",
        le(Kfut[t], sp.Sum(delta_t[s], (s, t + 1, T))),
        Induction("K end", "K token", Kfut, forward=False),
    ),
)
