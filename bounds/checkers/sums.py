"""Checkers for sums over positions and for minima."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import sympy as sp

from bounds.checkers.base import (
    HALF,
    NoNeeds,
    checked,
    decide,
    decide_all,
    from_verdict,
    is_model,
    nonneg,
    unroll,
)
from bounds.proof import Context, StepResult
from bounds.prover import Verdict, prove_eq, prove_le, prove_nonneg
from bounds.quantities import T, t


@dataclass(frozen=True)
class Triangle(NoNeeds):
    """Triangle inequality for a sum of real numbers ``a[1..T]``."""

    terms: sp.IndexedBase
    deepest: int = 5

    def run(self, statement: sp.Basic, context: Context) -> StepResult:
        def verdicts() -> Iterator[Verdict]:
            for n in range(1, self.deepest + 1):
                for signs in product((1, -1), repeat=n):
                    values = {
                        self.terms[i + 1]: sign * nonneg(f"g{i}") for i, sign in enumerate(signs)
                    }
                    lhs, rhs = (unroll(side, n) for side in statement.args)
                    yield decide(statement.func(lhs, rhs, evaluate=False), values)

        return decide_all(verdicts(), f"T = 1..{self.deepest}, every sign pattern")


@dataclass(frozen=True)
class SumRule(NoNeeds):
    """``sum_{t=1}^T f(t)`` against a closed form, by induction with symbolic T."""

    def run(self, statement: sp.Basic, context: Context) -> StepResult:
        lhs, rhs = statement.args
        if _root_of(lhs) and _root_of(rhs):
            lhs, rhs = lhs**2, rhs**2
        factor, series = lhs.as_independent(sp.Sum, as_Add=False)
        if not isinstance(series, sp.Sum) or series.limits != (sp.Tuple(t, 1, T),):
            raise ValueError("the left side is not a sum over positions")
        body = factor * series.function
        first = rhs.subs(T, 1) - body.subs(t, 1)
        step = rhs.subs(T, T + 1) - rhs - body.subs(t, T + 1)
        if isinstance(statement, sp.Eq):
            for part in (first, step):
                if sp.simplify(sp.expand(sp.powsimp(sp.expand(part)))) != 0:
                    return StepResult(
                        "refuted", "induction", "", f"base or step is off by {sp.simplify(part)}"
                    )
            return checked("induction", "all T, symbolic")
        verdict = prove_nonneg(first)
        if verdict:
            verdict = _radical_step(step)
        return from_verdict(
            Verdict(verdict.outcome, f"induction, {verdict.method}", verdict.detail), "all T"
        )


def _root_of(expression: sp.Expr) -> bool:
    """Whether every factor is a square root, so that the product is nonnegative."""
    return all(
        isinstance(factor, sp.Pow) and factor.exp == HALF for factor in sp.Mul.make_args(expression)
    )


def _radical_step(step: sp.Expr) -> Verdict:
    """``step >= 0`` with a = sqrt(T), b = sqrt(T + 1): made homogeneous by ``b^2 - a^2 = 1``."""
    a, gap = nonneg("a"), nonneg("gap")
    b = sp.Symbol("b_m", nonnegative=True)
    u, v = sp.Symbol("u", positive=True), sp.Symbol("v", positive=True)
    marked = step.subs(T + 1, v**2).subs(T, u**2)
    polynomial = sp.Poly(sp.expand(sp.powdenest(marked, force=True)), u, v)
    degree = polynomial.total_degree()
    whole = sp.S.Zero
    for (i, k), coefficient in polynomial.terms():
        missing = degree - i - k
        if missing % 2:
            return Verdict("unknown")
        whole += coefficient * a**i * b**k * (b**2 - a**2) ** (missing // 2)
    return prove_nonneg(sp.expand(whole.subs(b, a + gap)))


@dataclass(frozen=True)
class SumCauchySchwarz(NoNeeds):
    """Cauchy-Schwarz for a sum over positions, by Lagrange's identity."""

    first: sp.IndexedBase
    second: sp.Sum

    def run(self, statement: sp.Basic, context: Context) -> StepResult:
        marks = sp.IndexedBase(sp.Symbol("inner", nonnegative=True))
        _, low, high = self.second.limits[0]

        def mark(node: sp.Sum) -> sp.Sum:
            return sp.Sum(marks[t], *node.limits[1:])

        def verdicts() -> Iterator[Verdict]:
            for n in (1, 2, 3, 4):
                values = {self.first[i]: nonneg(f"a{i}") ** 2 for i in range(1, n + 1)}
                values |= {marks[i]: nonneg(f"b{i}") ** 2 for i in range(1, n + 1)}
                lhs, rhs = (
                    unroll(side.replace(self._hides, mark).xreplace({self.second: marks[t]}), n)
                    for side in statement.args
                )
                yield decide(statement.func(lhs, rhs, evaluate=False), values)

        if not (low.has(t) or high.has(t)):
            raise ValueError("the inner sum does not depend on the position")
        return decide_all(verdicts(), "T = 1..4, any nonnegative terms")

    def _hides(self, node: sp.Basic) -> bool:
        """Whether the node is a sum of ``second`` over positions, merged into one double sum."""
        return (
            isinstance(node, sp.Sum)
            and len(node.limits) == 2
            and node.function == self.second.function
            and node.limits[0] == self.second.limits[0]
        )


@dataclass(frozen=True)
class FiniteSums(NoNeeds):
    """A relation between sums of nonnegative per-position values, for small T.

    Attributes:
        terms: the per-position quantity.
        mean: scalar that equals the mean of the terms, if any.
    """

    terms: sp.IndexedBase
    mean: sp.Symbol | None = None
    deepest: int = 6

    def run(self, statement: sp.Basic, context: Context) -> StepResult:
        def verdicts() -> Iterator[Verdict]:
            for n in range(1, self.deepest + 1):
                values: dict[sp.Basic, sp.Expr] = {
                    self.terms[i]: nonneg(f"k{i}") for i in range(1, n + 1)
                }
                if self.mean is not None:
                    values[self.mean] = sum(values.values()) / n
                lhs, rhs = (unroll(side, n) for side in statement.args)
                yield decide(statement.func(lhs, rhs, evaluate=False), values)

        return decide_all(verdicts(), f"T = 1..{self.deepest}, any nonnegative terms")


@dataclass(frozen=True)
class MinCases(NoNeeds):
    """An identity between minima of 1 and powers of one nonnegative symbol, case by case."""

    symbol: sp.Symbol

    def run(self, statement: sp.Basic, context: Context) -> StepResult:
        r = nonneg("r")
        z = sp.Symbol("z", nonnegative=True)

        def verdicts() -> Iterator[Verdict]:
            # symbol = 2 z^2, and z = 1/(1+r) below 1, z = 1 + r above
            for value in (1 / (1 + r), 1 + r):
                sides = []
                for side in statement.args:
                    marked = side.subs(self.symbol, 2 * z**2)
                    sides.append(
                        marked.replace(
                            lambda node: isinstance(node, sp.Min),
                            lambda node, value=value: _smaller(node, z, value),
                        ).subs(z, value)
                    )
                if any(not all(map(is_model, side.free_symbols)) for side in sides):
                    raise ValueError("a symbol has no interpretation")
                yield prove_eq(*sides) if isinstance(statement, sp.Eq) else prove_le(*sides)

        return decide_all(verdicts(), f"all {self.symbol} >= 0, both cases of each minimum")


def _smaller(node: sp.Basic, z: sp.Symbol, value: sp.Expr) -> sp.Expr:
    args = [argument.subs(z, value) for argument in node.args]
    for candidate in args:
        if all(prove_nonneg(other - candidate) for other in args):
            return candidate
    raise ValueError("the smaller argument is not decided")
