"""How a missing input follows from given ones: Pinsker, chain rule, Cauchy-Schwarz, mean <= max.

Each rule states ``target <= expression(sources)`` (or ``=``). Rules of kind ``"derived"`` are
theorems, so a bound fed by them stays a bound. Rules of kind ``"approximation"`` are
small-divergence expansions; what they feed is never called a bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

import sympy as sp

from bounds import quantities as q

RuleKind = Literal["derived", "approximation"]


@dataclass(frozen=True)
class Rule:
    """``target <= expression``; ``lemma`` names why.

    Attributes:
        target: quantity name that the rule supplies.
        sources: quantity names that it needs.
        expression: sympy expression in the sources' symbols. A per-position source appears
            indexed by ``t`` and, in a rule with a scalar target, under ``Sum``.
        lemma: short name of the inequality, shown to the user.
        kind: theorem ("derived") or small-divergence expansion ("approximation").
        reduce: ``"max"`` when the scalar target is the largest per-position value.
    """

    target: str
    sources: tuple[str, ...]
    expression: sp.Expr
    lemma: str
    kind: RuleKind = "derived"
    reduce: Literal["none", "max"] = "none"


def _sum(body: sp.Expr) -> sp.Sum:
    return sp.Sum(body, (q.t, 1, q.T))


#: In dependency order: a rule may use only targets of earlier rules (or given inputs).
RULES: Final[tuple[Rule, ...]] = (
    # scalars from per-position arrays
    Rule("kl_max", ("kl_max_t",), q.delta_t[q.t], "largest position", reduce="max"),
    Rule("chi2_max", ("chi2_max_t",), q.x_t[q.t], "largest position", reduce="max"),
    Rule("tv_max", ("tv_max_t",), q.eps_t[q.t], "largest position", reduce="max"),
    Rule("tv_max", ("kl_max",), sp.Min(1, sp.sqrt(q.delta / 2)), "Pinsker"),
    Rule("tv_max", ("chi2_max",), sp.Min(1, sp.sqrt(q.x) / 2), "Cauchy-Schwarz"),
    Rule("kl_seq", ("T", "kl_mean_t"), _sum(q.KL_t[q.t]), "chain rule"),
    Rule("kl_seq", ("T", "kl_max"), q.T * q.delta, "chain rule, mean <= max"),
    Rule("chi2_mean", ("T", "chi2_mean_t"), _sum(q.X_t[q.t]) / q.T, "definition"),
    Rule("chi2_mean", ("chi2_max",), q.x, "mean <= max"),
    Rule("hel_max", ("hel_max_t",), q.eta_t[q.t], "largest position", reduce="max"),
    Rule("hel_max", ("kl_max",), sp.Min(2, q.delta), "Hellinger <= KL"),
    Rule("hel_max", ("tv_max",), 2 * q.eps, "Hellinger <= 2 TV"),
    Rule("hel_max", ("chi2_max",), sp.Min(2, q.x), "Hellinger <= chi-square"),
    # per-position values
    Rule("kl_max_t", ("kl_max",), q.delta, "position <= max"),
    Rule("tv_max_t", ("kl_max_t",), sp.Min(1, sp.sqrt(q.delta_t[q.t] / 2)), "Pinsker"),
    Rule("tv_max_t", ("tv_max",), q.eps, "position <= max"),
    Rule("chi2_max_t", ("chi2_max",), q.x, "position <= max"),
    Rule("kl_mean_t", ("kl_max_t",), q.delta_t[q.t], "mean <= max"),
    Rule("tv_mean_t", ("kl_mean_t",), sp.Min(1, sp.sqrt(q.KL_t[q.t] / 2)), "Pinsker, Jensen"),
    Rule("tv_mean_t", ("tv_max_t",), q.eps_t[q.t], "mean <= max"),
    Rule("chi2_mean_t", ("chi2_max_t",), q.x_t[q.t], "mean <= max"),
    Rule("hel_max_t", ("kl_max_t",), sp.Min(2, q.delta_t[q.t]), "Hellinger <= KL"),
    Rule("hel_max_t", ("tv_max_t",), 2 * q.eps_t[q.t], "Hellinger <= 2 TV"),
    Rule("hel_max_t", ("chi2_max_t",), sp.Min(2, q.x_t[q.t]), "Hellinger <= chi-square"),
    Rule("hel_max_t", ("hel_max",), q.eta, "position <= max"),
    Rule("hel_mean_t", ("kl_mean_t",), sp.Min(2, q.KL_t[q.t]), "Hellinger <= KL"),
    Rule("hel_mean_t", ("tv_mean_t",), 2 * q.D_t[q.t], "Hellinger <= 2 TV"),
    Rule("hel_mean_t", ("hel_max_t",), q.eta_t[q.t], "mean <= max"),
    Rule("hel_mean", ("T", "hel_mean_t"), _sum(q.H_t[q.t]) / q.T, "definition"),
    Rule("hel_mean", ("T", "kl_seq"), sp.Min(2, q.Kseq / q.T), "Hellinger <= KL, chain rule"),
    Rule("hel_mean", ("hel_max",), q.eta, "mean <= max"),
    Rule("quartic_mean", ("T", "quartic_mean_t"), _sum(q.F_t[q.t]) / q.T, "definition"),
    Rule("quartic_mean", ("chi2_mean",), q.Xbar, "(sqrt(rho) - 1)^2 <= |rho - 1|"),
    # whole trajectories
    Rule("tv_seq", ("kl_seq",), sp.Min(1, sp.sqrt(q.Kseq / 2)), "Pinsker"),
    Rule("tv_seq", ("T", "tv_mean_t"), sp.Min(1, _sum(q.D_t[q.t])), "coupling"),
    Rule("hel_seq", ("kl_seq",), sp.Min(2, q.Kseq), "Hellinger <= KL"),
    Rule("hel_seq", ("tv_seq",), 2 * q.TVseq, "Hellinger <= 2 TV"),
    Rule("hel_seq", ("T", "hel_max_t"), sp.Min(2, _sum(q.eta_t[q.t])), "affinities multiply"),
    Rule("hel_cross", ("T", "hel_max_t"), q.PAST_HELLINGER, "affinities multiply"),
    Rule(
        "hel_cross",
        ("T", "hel_max_t", "hel_seq"),
        q.Hseq * _sum(q.eta_t[q.t]),
        "data processing of Hellinger",
    ),
    # small-divergence expansions, used only when no theorem supplies the target
    Rule("chi2_max", ("kl_max",), 2 * q.delta, "x = 2 delta", kind="approximation"),
    Rule("chi2_mean", ("T", "kl_seq"), 2 * q.Kseq / q.T, "Xbar = 2 K_seq/T", kind="approximation"),
    Rule("chi2_max_t", ("kl_max_t",), 2 * q.delta_t[q.t], "x = 2 delta", kind="approximation"),
    Rule("chi2_mean_t", ("kl_mean_t",), 2 * q.KL_t[q.t], "X_t = 2 KLbar_t", kind="approximation"),
)


def schedule(given: Iterable[str]) -> Iterator[tuple[str, list[Rule]]]:
    """Which rules supply each quantity that is not given, in an order that can be followed.

    Theorems first, every one that applies; an approximation (or a theorem about an approximated
    source), the first that applies, only for what no theorem supplies.

    Args:
        given: names of the given quantities.

    Yields:
        ``(target, rules)``; the sources of ``rules`` are given or were yielded before.
    """
    known = set(given)
    for kind in ("derived", "approximation"):
        for target in dict.fromkeys(rule.target for rule in RULES):
            if target in known:
                continue
            usable = [
                rule
                for rule in RULES
                if rule.target == target
                and known.issuperset(rule.sources)
                and (rule.kind == kind or kind == "approximation")
            ]
            if usable:
                known.add(target)
                yield target, usable[:1] if kind == "approximation" else usable
