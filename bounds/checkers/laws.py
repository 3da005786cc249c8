"""Checkers for pairs of laws: duality, events, Pinsker, data processing, coupling, maxima."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product

import sympy as sp

from bounds.algebra import nondecreasing
from bounds.atoms import E
from bounds.checkers.base import (
    NoNeeds,
    decide,
    decide_all,
    from_verdict,
    gains,
    interpret,
    nonneg,
    real,
    zero_sum,
)
from bounds.proof import Context, StepResult
from bounds.prover import Verdict, prove_by_convexity, prove_by_derivative, prove_eq, prove_le
from bounds.symbolic_tree import symbolic_tree


@dataclass(frozen=True)
class Vertices:
    """``|sum_i f_i u_i|`` against ``sum |u_i|`` for zero-sum u and f in a box.

    Left sides are nondecreasing in ``|sum f u|``, which is convex in f, so vertices of the box
    suffice; on each sign pattern of u both sides are polynomials.

    Attributes:
        linear: the subexpression that equals ``sum f u``.
        low, high: range of every ``f_i``; ``F`` in them is the largest ``|f_i|``.
        mass: (subexpression, factor): it equals ``factor * sum |u_i|``, plus a slack when
            ``slack``.
        scale: subexpression that equals F, if any.
        absolute: whether ``linear`` stands for ``|sum f u|``.
        supremum: the left side is the supremum itself: equality must be attained at a vertex.
        zero_mean: premise ``E(w) = 0`` that makes u zero-sum; its key and w.
    """

    linear: sp.Expr
    low: sp.Expr
    high: sp.Expr
    mass: tuple[tuple[sp.Expr, sp.Expr], ...]
    scale: sp.Expr | None = None
    absolute: bool = False
    slack: bool = False
    supremum: sp.Expr | None = None
    zero_mean: tuple[str, sp.Expr] | None = None
    outcomes: tuple[int, ...] = (2, 3, 4)

    def needs(self) -> tuple[str, ...]:
        return (self.zero_mean[0],) if self.zero_mean else ()

    def run(self, statement: sp.Basic, context: Context) -> StepResult:
        if self.zero_mean:
            key, body = self.zero_mean
            premise = context.steps[key].statement
            if premise != sp.Eq(E(body), 0, evaluate=False):
                raise ValueError(f"the premise E({body}) = 0 is not what step {key} states")
        scope = f"{self.outcomes[0]}..{self.outcomes[-1]} outcomes, every sign pattern and vertex"
        if self.supremum is not None:
            return decide_all(self._attained(statement), scope)
        lhs, rhs = statement.args
        z = sp.Dummy("z", nonnegative=True)
        size = self.linear if self.absolute else sp.Abs(self.linear)
        marked = lhs.xreplace({size: z})
        if not isinstance(statement, sp.Le) or marked == lhs or not nondecreasing(marked, z):
            raise ValueError("the left side is not nondecreasing in the linear form's size")
        if rhs.has(self.linear):
            raise ValueError("the linear form is on the right side")
        return decide_all(
            (decide(statement, values) for n in self.outcomes for values in self._cases(n)), scope
        )

    def _cases(self, n: int) -> Iterator[dict[sp.Basic, sp.Expr]]:
        for u in zero_sum(n):
            total = sum(sp.expand(x * (1 if gains(x) else -1)) for x in u)
            for f in product((self.low, self.high), repeat=n):
                form = sum((a * b for a, b in zip(f, u, strict=True)), sp.S.Zero)
                values = {
                    atom: factor * total + (nonneg("slack") if self.slack else 0)
                    for atom, factor in self.mass
                }
                values[self.linear] = sp.Abs(sp.expand(form)) if self.absolute else form
                if self.scale is not None:
                    values[self.scale] = nonneg("F")
                yield values

    def _attained(self, statement: sp.Basic) -> Iterator[Verdict]:
        """``sup_f |sum f u|`` equals the right side: every vertex is below, one attains it."""
        lhs, rhs = statement.args
        if not isinstance(statement, sp.Eq) or lhs != self.supremum:
            raise ValueError("the left side is not the supremum")
        for n in self.outcomes:
            for u in zero_sum(n):
                total = sum(x * (1 if gains(x) else -1) for x in u)
                right = interpret(rhs, {atom: k * total for atom, k in self.mass})
                best = sum(x for x in u if gains(x))
                yield prove_eq(best, right)
                for f in product((self.low, self.high), repeat=n):
                    form = sum((a * b for a, b in zip(f, u, strict=True)), sp.S.Zero)
                    yield prove_le(sp.Abs(sp.expand(form)), right)


@dataclass(frozen=True)
class EventSplit(NoNeeds):
    """``1/2 sum |u| = sum of the positive u`` for zero-sum u."""

    variation: sp.Expr
    gap: sp.Expr

    def run(self, statement: sp.Basic, context: Context) -> StepResult:
        def verdicts() -> Iterator[Verdict]:
            for n in (2, 3, 4):
                for u in zero_sum(n):
                    values = {
                        self.variation: sum(x if gains(x) else -x for x in u) / 2,
                        self.gap: sum(x for x in u if gains(x)),
                    }
                    yield decide(statement, values)

        return decide_all(verdicts(), "2..4 outcomes, every sign pattern")


@dataclass(frozen=True)
class BernoulliPinsker(NoNeeds):
    """Pinsker for two outcomes, by a derivative certificate in q."""

    gap: sp.Expr
    divergence: sp.Expr

    def run(self, statement: sp.Basic, context: Context) -> StepResult:
        p = sp.Symbol("p_m", positive=True)
        q = sp.Symbol("q_m", positive=True)
        distance, kl = nonneg("d"), nonneg("kl")
        lhs, rhs = (
            interpret(side, {self.gap: distance, self.divergence: kl}) for side in statement.args
        )
        if not isinstance(statement, sp.Le):
            raise ValueError("Pinsker is an inequality")
        if not (lhs.is_nonnegative and rhs.is_nonnegative):
            raise ValueError("only nonnegative sides may be squared")
        squared = sp.expand(rhs**2 - lhs**2).subs(
            {
                distance: p - q,
                kl: p * sp.log(p / q) + (1 - p) * sp.log((1 - p) / (1 - q)),
            }
        )
        verdict = _by_derivative(squared, q, p)
        return from_verdict(verdict, "all p >= q in (0, 1): squares compared, derivative in q")


@cache
def _by_derivative(expression: sp.Expr, moving: sp.Symbol, at: sp.Symbol) -> Verdict:
    """Derivative certificate on the open unit square."""
    unit = (sp.S.Zero, sp.S.One)
    return prove_by_derivative(expression, moving, at, {at: unit, moving: unit})


@dataclass(frozen=True)
class LogSum(NoNeeds):
    """Merging two outcomes cannot raise KL (log-sum inequality), by convexity in one mass."""

    coarse: sp.Expr
    fine: sp.Expr

    def run(self, statement: sp.Basic, context: Context) -> StepResult:
        a, b, c, d = (sp.Symbol(f"{name}_m", positive=True) for name in "abcd")
        rest = real("rest")
        values = {
            self.fine: a * sp.log(a / b) + c * sp.log(c / d) + rest,
            self.coarse: (a + c) * sp.log((a + c) / (b + d)) + rest,
        }
        lhs, rhs = (interpret(side, values) for side in statement.args)
        if not isinstance(statement, sp.Le):
            raise ValueError("data processing is an inequality")
        return from_verdict(
            prove_by_convexity(rhs - lhs, c, a * d / b),
            "all positive masses; outcomes merged two at a time",
        )


@dataclass(frozen=True)
class Largest(NoNeeds):
    """``a <= b`` where b is the largest of values that include a: ``b = a + slack``."""

    member: sp.Expr
    largest: sp.Expr

    def run(self, statement: sp.Basic, context: Context) -> StepResult:
        value, slack = nonneg("a"), nonneg("slack")
        values = {self.member: value, self.largest: value + slack}
        return from_verdict(
            decide(statement, values), "definition of the maximum: largest = a + slack"
        )


@dataclass(frozen=True)
class MeanBelowMax(NoNeeds):
    """A mean over contexts is at most the largest value."""

    mean: sp.Expr
    largest: sp.Expr

    def run(self, statement: sp.Basic, context: Context) -> StepResult:
        def verdicts() -> Iterator[Verdict]:
            for n in (2, 3, 4):
                weights = [sp.Symbol(f"w{i}_m", positive=True) for i in range(n)]
                values = [nonneg(f"v{i}") for i in range(n)]
                slacks = [nonneg(f"k{i}") for i in range(n)]
                mass = sum(weights)
                mean = sum(w * v for w, v in zip(weights, values, strict=True)) / mass
                top = (
                    sum(w * (v + k) for w, v, k in zip(weights, values, slacks, strict=True)) / mass
                )
                yield decide(statement, {self.mean: mean, self.largest: top})

        return decide_all(verdicts(), "2..4 contexts, any weights; largest = value + slack in each")


@dataclass(frozen=True)
class UnitTV(NoNeeds):
    """Total variation of two probability laws is at most 1."""

    variation: sp.Expr

    def run(self, statement: sp.Basic, context: Context) -> StepResult:
        def verdicts() -> Iterator[Verdict]:
            for n in (2, 3):
                a = [nonneg(f"a{i}") for i in range(n)]
                b = [nonneg(f"b{i}") for i in range(n)]
                for signs in product((1, -1), repeat=n):
                    total = sum(
                        sign * (x / sum(a) - y / sum(b))
                        for sign, x, y in zip(signs, a, b, strict=True)
                    )
                    # 1/2 sum |p - q| is the largest of these over the sign patterns
                    lhs, rhs = statement.args
                    z = sp.Dummy("z", nonnegative=True)
                    marked = lhs.xreplace({self.variation: z})
                    if not nondecreasing(marked, z) or rhs.has(self.variation):
                        raise ValueError("the left side is not nondecreasing in the variation")
                    if not isinstance(statement, sp.Le) or marked == lhs:
                        raise ValueError("not a bound on the variation")
                    yield decide(statement, {self.variation: total / 2})

        return decide_all(verdicts(), "2..3 outcomes, normalised laws, every sign pattern")


@dataclass(frozen=True)
class Marginal(NoNeeds):
    """Total variation of a marginal is at most that of the joint law."""

    marginal: sp.Expr
    joint: sp.Expr

    def run(self, statement: sp.Basic, context: Context) -> StepResult:
        def verdicts() -> Iterator[Verdict]:
            rows, columns = 2, 3
            for signs in product((1, -1), repeat=rows * columns):
                u = [sign * nonneg(f"u{i}") for i, sign in enumerate(signs)]
                parts = [u[i * columns : (i + 1) * columns] for i in range(rows)]
                values = {
                    self.marginal: sum(sp.Abs(sum(part)) for part in parts) / 2,
                    self.joint: sum(sign * x for sign, x in zip(signs, u, strict=True)) / 2,
                }
                yield decide(statement, values)

        return decide_all(verdicts(), "2 x 3 joint laws, every sign pattern")


@dataclass(frozen=True)
class CouplingStep(NoNeeds):
    """One more token: ``|Q q - P p| <= |Q - P| q + P |q - p|``, summed.

    Attributes:
        whole: half the l1 distance of the two-stage laws.
        first: half the l1 distance of the first-stage laws.
        second: the largest half l1 distance of second-stage laws.
    """

    whole: sp.Expr
    first: sp.Expr
    second: sp.Expr

    def run(self, statement: sp.Basic, context: Context) -> StepResult:
        # up to a context's overall sign and the names of its tokens there is one pattern: shift
        # positive, first token's change positive, second's negative
        cells = list(product(range(2), range(2)))
        masses = [nonneg(f"P{c}") for c in range(2)]
        shifts = [nonneg(f"d{c}") for c in range(2)]
        slacks = [nonneg(f"k{c}") for c in range(2)]
        kernel = {cell: nonneg(f"q{cell[0]}{cell[1]}") for cell in cells}
        change = {cell: nonneg(f"f{cell[0]}{cell[1]}") for cell in cells}

        whole = sum(
            sp.Abs(shifts[c] * kernel[c, y] + (-1) ** y * masses[c] * change[c, y])
            for c, y in cells
        )
        values = {
            self.whole: whole / 2,
            self.first: sum(shifts[c] * kernel[c, y] for c, y in cells) / 2,
            self.second: sum(masses[c] * change[c, y] for c, y in cells) / 2
            + sum(masses[c] * slacks[c] for c in range(2)),
        }
        return from_verdict(
            decide(statement, values), "2 contexts, 2 tokens, every sign pattern; laws sum to 1"
        )


@dataclass(frozen=True)
class ChainStep(NoNeeds):
    """One token of the KL chain rule, with the largest value of each part."""

    whole: sp.Expr
    first: sp.Expr
    second: sp.Expr

    def run(self, statement: sp.Basic, context: Context) -> StepResult:
        tree = symbolic_tree(2)
        root: tuple[int, ...] = ()
        rest = sum(
            (tree.p[root][y] * tree._along("KLf", 1, (y, 0)) for y in range(2)), tree.ring.zero
        )
        if tree._along("KLf", 0, (0, 0)) - tree._kl(root) - rest != 0:
            raise ValueError("the chain rule fails on the symbolic tree")

        def verdicts() -> Iterator[Verdict]:
            for n in (2, 3):
                p = [nonneg(f"p{y}") for y in range(n)]
                later = [nonneg(f"K{y}") for y in range(n)]
                slack = [nonneg(f"k{y}") for y in range(n)]
                now, extra = nonneg("now"), nonneg("extra")
                mean = sum(a * b for a, b in zip(p, later, strict=True)) / sum(p)
                top = sum(a * (b + c) for a, b, c in zip(p, later, slack, strict=True)) / sum(p)
                yield decide(
                    statement,
                    {self.whole: now + mean, self.first: now + extra, self.second: top},
                )

        return decide_all(verdicts(), "2..3 tokens; chain rule with formal logarithms, |V| = 2")
