"""Proof builders shared by the catalog: each lists lemmas and the order in which they are applied.

The bound itself is never written here: the last step computes it from the lemmas' statements and
compares it with the registry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import sympy as sp

from bounds import lemmas_hellinger as hel
from bounds import lemmas_sums as sums
from bounds import lemmas_tree as tree
from bounds import lemmas_tv as tv
from bounds.atoms import Error, SupR, TVd, TVf
from bounds.checkers import Assembly, LeastMember, MemberProof, Routes
from bounds.proof import Proof, Step
from bounds.quantities import TVseq, eps_t, t
from bounds.registry import Bound

#: A chain: steps to list, and keys in the order in which they are applied.
Builder = Callable[[Bound], Proof]


@dataclass(frozen=True)
class Chain:
    """Steps that rewrite one quantity.

    Attributes:
        listed: steps in the order in which they are printed.
        applied: keys in the order in which they are applied; premises are listed only.
    """

    listed: tuple[Step, ...]
    applied: tuple[str, ...]


def chain(*steps: Step, premises: Sequence[Step] = ()) -> Chain:
    """A chain that applies ``steps`` in order and lists ``premises`` where they are needed."""
    listed: list[Step] = []
    for step in steps:
        listed += [p for p in premises if p.key in step.check.needs() and p not in listed]
        listed.append(step)
    return Chain(tuple(listed), tuple(step.key for step in steps))


def routes(atom: sp.Expr, *chains: Chain, tag: str) -> Chain:
    """``atom`` is at most the least of what the chains give."""
    listed = _distinct(step for one in chains for step in one.listed)
    check = Routes(atom, tuple(one.applied for one in chains))
    step = Step(
        f"least {tag}",
        "least of the routes",
        "Each route is a bound, so the least of them is.",
        check.conclusion({step.key: step for step in listed}),
        check,
    )
    return Chain((*listed, step), (step.key,))


def _distinct(steps: Iterable[Step]) -> tuple[Step, ...]:
    found: dict[str, Step] = {}
    for step in steps:
        found.setdefault(step.key, step)
    return tuple(found.values())


def assemble(bound: Bound, *chains: Chain, start: sp.Expr | None = None) -> Proof:
    """The proof that applies the chains one after another, from ``|Error|`` to the bound."""
    start = sp.Abs(Error) if start is None else start
    listed = _distinct(step for one in chains for step in one.listed)
    relation = sp.Eq if start.has(SupR) else sp.Le
    last = Step(
        "bound",
        "assembly",
        "Replace step after step; what results is the bound.",
        relation(start, bound.expression, evaluate=False),
        Assembly(start, tuple(key for one in chains for key in one.applied)),
    )
    return Proof(bound, (*listed, last))


# chains ------------------------------------------------------------------------------------------

#: |Error| <= sum_t 2 max|g_t| TV(d_t)
FAMILY = chain(tree.PERFORMANCE_DIFFERENCE, tree.TRIANGLE, tv.DUALITY)
TOKEN_TV = chain(tv.LARGEST_TV)
TOKEN_KL = chain(*tv.PINSKER_TOKEN, tv.LARGEST_KL)
UNIT_TOKEN = chain(tv.UNIT_TOKEN)
CAPPED_TOKEN_TV = routes(eps_t[t], UNIT_TOKEN, TOKEN_TV, tag="token")
CAPPED_TOKEN_KL = routes(eps_t[t], UNIT_TOKEN, TOKEN_KL, tag="token")

COUPLING_POSITIONS = chain(tv.COUPLING_CONTEXT[2], premises=tv.COUPLING_CONTEXT[:2])
PINSKER_POSITIONS = chain(*tv.PINSKER_CONTEXT, tree.KL_CHAIN_CONTEXT, tv.MEAN_KL)
MARGINAL_KL = Chain(
    (*PINSKER_POSITIONS.listed, tv.LARGEST_KL), (*PINSKER_POSITIONS.applied, tv.LARGEST_KL.key)
)
COUPLING = Chain(
    (*COUPLING_POSITIONS.listed, tv.LARGEST_TV), (*COUPLING_POSITIONS.applied, tv.LARGEST_TV.key)
)
SEQUENCE_TV = chain(tv.MARGINAL)
SEQUENCE_KL = chain(tv.MARGINAL, *tv.PINSKER_SEQUENCE)
UNIT_CONTEXT = chain(tv.UNIT_CONTEXT)


def capped(*ways: Chain) -> Chain:
    """``TV(d_t) <= min(1, ways)``."""
    return routes(TVd[t], UNIT_CONTEXT, *ways, tag="context")


def family(*chains: Chain) -> Builder:
    """A member of the TRM family: the advantage's bound, then the context's."""

    def build(bound: Bound) -> Proof:
        sharp = bound.form in ("sharp", "position-wise")
        return assemble(bound, FAMILY, chain(tv.advantage(sharp)), *chains)

    return build


FUTURE_COUPLING = chain(tv.COUPLING_FUTURE[0], tv.COUPLING_FUTURE[3], premises=tv.COUPLING_FUTURE)
FUTURE_KL = chain(
    *tv.PINSKER_FUTURE, tv.CHAIN_FUTURE[0], tv.CHAIN_FUTURE[3], premises=tv.CHAIN_FUTURE
)


def adaptive(per_position: bool) -> Builder:
    """The Adaptive bound in four steps; maxima over all positions or per position."""
    coupling, pinsker = FUTURE_COUPLING, FUTURE_KL
    if not per_position:
        coupling = Chain((*coupling.listed, tv.LARGEST_TV), (*coupling.applied, tv.LARGEST_TV.key))
        pinsker = Chain((*pinsker.listed, tv.LARGEST_KL), (*pinsker.applied, tv.LARGEST_KL.key))

    def build(bound: Bound) -> Proof:
        sharp = bound.form in ("sharp", "position-wise")
        return assemble(
            bound,
            FUTURE_ERROR,
            chain(tv.future_reward(sharp)),
            routes(TVf[t], chain(tv.UNIT_FUTURE), coupling, pinsker, tag="future"),
            chain(tree.MEAN_DEVIATION),
        )

    return build


#: |Error| <= sum_t E[|rho_t - 1| |B_t|]
FUTURE_ERROR = chain(tree.ERROR_BY_RATIOS, tree.TELESCOPE_FUTURE, tree.TOWER, tree.PATH_TRIANGLE)


def martingale(uniform: bool) -> Builder:
    """The martingale chi-square bound."""
    w = tree.W_PAST
    steps = [
        tree.ERROR_BY_RATIOS,
        tree.TELESCOPE_PAST,
        tv.worst_reward(w),
        tree.root_mean_square(w),
        tree.ORTHOGONAL_INCREMENTS,
        tree.CONDITIONAL_CHI2,
        tree.LARGEST_CHI2,
        tree.PAST_VARIANCE,
        tree.PAST_SQUARE,
    ]
    if uniform:
        steps += [tree.UNIFORM_CHI2, sums.GEOMETRIC_SUM]
    premises = (tree.zero_mean(w), tree.SQUARE_RECURSION)

    def build(bound: Bound) -> Proof:
        return assemble(bound, chain(*steps, premises=premises))

    return build


def square_root(bound: Bound) -> Proof:
    """The square-root bound."""
    deviations = tree.DEVIATIONS
    return assemble(
        bound,
        chain(tree.ERROR_BY_RATIOS, tree.SPLIT, tv.WHOLE_REWARD),
        routes(TVseq, chain(tv.UNIT_SEQUENCE), Chain((), ()), tag="sequence"),
        chain(
            tv.worst_reward(deviations),
            tree.root_mean_square(deviations),
            tree.ORTHOGONAL_DEVIATIONS,
            tree.SECOND_MOMENT,
            sums.MEAN_CHI2,
            premises=(tree.zero_mean(deviations),),
        ),
    )


def cauchy_schwarz(summed: bool) -> Builder:
    """The max-free Cauchy-Schwarz bound; ``summed`` over positions into two means."""
    steps = [
        tv.future_reward(sharp=True),
        *tv.PINSKER_FUTURE,
        tree.CAUCHY_SCHWARZ,
        tree.SECOND_MOMENT,
        tree.KL_CHAIN_FUTURE,
    ]
    if summed:
        steps += [
            sums.SUM_CAUCHY_SCHWARZ,
            sums.MEAN_CHI2,
            sums.COUNT_KL,
            tree.KL_CHAIN_SEQUENCE,
        ]

    def build(bound: Bound) -> Proof:
        return assemble(bound, FUTURE_ERROR, chain(*steps))

    return build


def hellinger(means: bool, quartic: bool) -> Builder:
    """The Hellinger bounds, from means or from maxima.

    Args:
        means: keep means over contexts; else bound them by maxima.
        quartic: bound the sum of surprises by its variance; else by its mean size.
    """
    if quartic:
        tail = chain(*hel.BY_SQUARE, hel.MEAN_QUARTIC)
    else:
        tail = chain(*hel.BY_MEAN, hel.MEAN_HEL if means else hel.LARGEST_MEAN)
    steps = [
        tree.ERROR_BY_RATIOS,
        tv.worst_reward(hel.WEIGHT),
        *hel.ROOTS,
        hel.DECOMPOSE,
        hel.TRIANGLE,
        hel.BALANCE,
        hel.CROSS_RMS,
        hel.CROSS_ORTHOGONAL,
        hel.CROSS_VARIANCE,
        hel.CROSS_DROP,
    ]
    if means:
        steps += [hel.SEQUENCE, hel.CROSS_MEAN]
    else:
        steps += [hel.LARGEST_HEL, hel.PAST_AFFINITY, hel.WHOLE_AFFINITY]
    premises = (
        tree.zero_mean(hel.WEIGHT),
        hel.RECURSION,
        hel.PAST_SQUARE,
        hel.WHOLE_SQUARE,
    )

    def build(bound: Bound) -> Proof:
        # the surprises go first: their route names h_t as well
        first, rest = steps[:7], steps[7:]
        return assemble(
            bound, chain(*first, premises=premises), tail, chain(*rest, premises=premises)
        )

    return build


def oracle(bound: Bound) -> Proof:
    """The worst reward's error, an equality."""
    w = tree.W_PAST
    return assemble(
        bound,
        chain(
            tree.ERROR_BY_RATIOS,
            tree.TELESCOPE_PAST,
            tv.worst_reward(w, attained=True),
            tree.LOG_RATIO,
            premises=(tree.zero_mean(w),),
        ),
        start=SupR(sp.Abs(Error)),
    )


def minimum(bound: Bound) -> Proof:
    """The least of members, each with its own verified proof."""
    from bounds import registry

    steps = [
        Step(
            name,
            "member",
            f"{registry.get(name).title}: see its own proof.",
            sp.Le(sp.Abs(Error), registry.get(name).expression, evaluate=False),
            MemberProof(name),
        )
        for name in bound.members
    ]
    last = Step(
        "bound",
        "least of valid bounds",
        "Each member is a bound, so the least of them is.",
        sp.Le(sp.Abs(Error), bound.expression, evaluate=False),
        LeastMember(tuple(step.key for step in steps)),
    )
    return Proof(bound, (*steps, last))
