"""Checkers for statements along sampled sequences: tree identities, ratios, expectations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import sympy as sp

from bounds.algebra import nonnegative
from bounds.atoms import B, E, R, hel, rho, root
from bounds.checkers.base import (
    NoNeeds,
    checked,
    decide,
    decide_all,
    from_verdict,
    interpret,
    is_model,
    nonneg,
    real,
    unroll,
)
from bounds.proof import Context, StepResult
from bounds.prover import Verdict, prove_eq, prove_le
from bounds.quantities import T, ell_t, j, t
from bounds.symbolic_tree import Tree, root_tree, symbolic_tree


@dataclass(frozen=True)
class TreeIdentity(NoNeeds):
    """An identity on the symbolic tree: general laws and rewards, T up to ``deepest``.

    Attributes:
        deepest: longest horizon.
        roots: use the tree whose laws have rational roots (and no rewards).
    """

    deepest: int = 3
    roots: bool = False

    def run(self, statement: sp.Basic, context: Context) -> StepResult:
        if not isinstance(statement, sp.Eq):
            raise ValueError("only identities hold on the symbolic tree")
        for depth in range(1, self.deepest + 1):
            tree: Tree = root_tree(depth) if self.roots else symbolic_tree(depth)
            for index in range(1, depth + 1) if statement.has(t) else (1,):
                left, right = (tree.evaluate(side, {t: index}) for side in statement.args)
                if tree.reduced(left - right) != 0:
                    return StepResult(
                        "refuted",
                        "symbolic",
                        f"T = {depth}, |V| = 2",
                        "the sides differ by a nonzero function of the laws",
                    )
        what = "general laws" if self.roots else "general laws and rewards"
        return checked("symbolic", f"T = 1..{self.deepest}, |V| = 2, {what}")


@dataclass(frozen=True)
class PathIdentity(NoNeeds):
    """A polynomial identity in the ratios rho_1..rho_T: T up to ``deepest``, then by induction."""

    deepest: int = 6

    def run(self, statement: sp.Basic, context: Context) -> StepResult:
        if not isinstance(statement, sp.Eq):
            raise ValueError("not an identity")

        def verdicts() -> Iterator[Verdict]:
            for n in range(1, self.deepest + 1):
                values = {
                    base[i]: real(f"{base.label.name}{i}")
                    for base in (rho, root, hel)
                    for i in range(1, n + 1)
                }
                sides = [unroll(side, n) for side in statement.args]
                yield prove_eq(*[interpret(side, values) for side in sides])

        result = decide_all(verdicts(), f"T = 1..{self.deepest}, general ratios")
        if result.status == "checked" and _ratio_induction(statement.lhs - statement.rhs):
            return checked("symbolic, induction", "all T, general ratios")
        return result


def _ratio_induction(difference: sp.Expr) -> bool:
    """Whether D(T + 1) is D(T), or D(T) times the new ratio, with symbolic T.

    Sums are split into monomials; a product over the future gains the new ratio, one over the past
    does not.
    """
    ratio, past = sp.symbols("r_m M_m", real=True)
    base = root if difference.has(root.label) else rho
    context = sp.Symbol("h_m", nonnegative=True)
    whole = sp.Product(base[j], (j, 1, T))
    before, after = sp.Product(base[j], (j, 1, t - 1)), sp.Product(base[j], (j, t + 1, T))
    now: dict[sp.Basic, sp.Expr] = {whole: past}
    then: dict[sp.Basic, sp.Expr] = {past: past * ratio}
    for series in difference.atoms(sp.Sum):
        if series.limits != (sp.Tuple(t, 1, T),):
            return False
        parts, p, f = sp.S.Zero, sp.Symbol("p_m"), sp.Symbol("f_m")
        marked = sp.expand(
            series.function.xreplace({before: p, after: f, base[t]: ratio, hel[t]: context})
        )
        if not marked.free_symbols <= {p, f, ratio, context}:
            return False
        for term in sp.Add.make_args(marked):
            coefficient, monomial = term.as_coeff_Mul()
            total = sp.Symbol(f"Z[{monomial}]_m", real=True)
            growth = ratio ** sp.degree(monomial, f) if monomial.has(f) else sp.S.One
            parts += coefficient * total
            if monomial.has(f) and monomial.has(context):
                return False
            then[total] = total * growth + monomial.subs({f: 1, p: past})
        now[series] = parts
    start = difference.xreplace(now)
    if not all(map(is_model, start.free_symbols)):
        return False
    following = sp.expand(start.xreplace(then))
    return any(sp.expand(following - factor * start) == 0 for factor in (1, ratio))


def _outcomes(
    expression: sp.Basic,
    horizon: int,
    n: int,
    values: Callable[[int], Mapping[sp.Basic, sp.Expr]],
) -> sp.Basic:
    """``E[body]`` as ``sum_i w_i body_i / sum_i w_i``; ``values(i)`` are outcome i's atoms."""
    expression = unroll(expression, horizon) if horizon else expression
    weights = [sp.Symbol(f"w{i}_m", positive=True) for i in range(n)]

    def expectation(node: sp.Basic) -> sp.Expr:
        total = sp.S.Zero
        for i, weight in enumerate(weights):
            total += weight * node.args[0].xreplace(values(i))
        return total / sum(weights)

    return expression.replace(lambda node: isinstance(node, E), expectation)


def _scaled(expression: sp.Expr) -> sp.Expr:
    """Common positive denominator 1: weights are taken to sum to one."""
    weights = sum(sorted((a for a in expression.free_symbols if a.name.startswith("w")), key=str))
    return expression.xreplace({1 / weights: sp.S.One}) if weights != 0 else expression


@dataclass(frozen=True)
class PathTriangle(NoNeeds):
    """Triangle inequality inside an expectation; atoms on the path are free real numbers.

    Attributes:
        parts: subexpressions taken as free real numbers, nonnegative where they are shown to be;
            none: the atoms themselves, sums written out for short horizons.
    """

    parts: tuple[sp.Expr, ...] = ()
    horizons: tuple[int, ...] = (1, 2)
    outcomes: int = 2

    def run(self, statement: sp.Basic, context: Context) -> StepResult:
        if self.parts:
            return self._by_parts(statement)

        def verdicts() -> Iterator[Verdict]:
            for horizon in self.horizons:

                def values(i: int, horizon: int = horizon) -> dict[sp.Basic, sp.Expr]:
                    found: dict[sp.Basic, sp.Expr] = {R: nonneg(f"R{i}")}
                    for k in range(1, horizon + 1):
                        found[rho[k]] = 1 + real(f"y{k}{i}")
                        found[B[k]] = real(f"B{k}{i}")
                        found[root[k]] = nonneg(f"r{k}{i}")
                        found[hel[k]] = nonneg(f"h{k}{i}")
                    return found

                lhs, rhs = (
                    sp.expand(_scaled(_outcomes(side, horizon, self.outcomes, values)))
                    for side in statement.args
                )
                yield self._compare(statement, lhs, rhs)

        return decide_all(
            verdicts(), f"T = 1..{self.horizons[-1]}, {self.outcomes} outcomes, real terms"
        )

    def _by_parts(self, statement: sp.Basic) -> StepResult:
        signs = [nonnegative(part) for part in self.parts]

        def values(i: int) -> dict[sp.Basic, sp.Expr]:
            return {
                part: nonneg(f"a{k}{i}") if sign else real(f"a{k}{i}")
                for k, (part, sign) in enumerate(zip(self.parts, signs, strict=True))
            }

        lhs, rhs = (
            sp.expand(_scaled(_outcomes(side, 0, self.outcomes, values))) for side in statement.args
        )
        return from_verdict(
            self._compare(statement, lhs, rhs), f"any T, {self.outcomes} outcomes, free parts"
        )

    @staticmethod
    def _compare(statement: sp.Basic, lhs: sp.Expr, rhs: sp.Expr) -> Verdict:
        if not isinstance(statement, sp.Le):
            raise ValueError("the triangle inequality is an inequality")
        left = [a for a in (lhs.free_symbols | rhs.free_symbols) if not is_model(a)]
        if left or lhs.has(E) or rhs.has(E):
            raise ValueError(f"{left} has no interpretation in this lemma's model")
        return prove_le(lhs, rhs)


@dataclass(frozen=True)
class Moments(NoNeeds):
    """Cauchy-Schwarz under an expectation, by Lagrange's identity.

    Attributes:
        first: subexpression that is a real random variable.
        second: subexpression that is a nonnegative random variable whose root is taken, if any.
    """

    first: sp.Expr
    second: sp.Expr | None = None

    def run(self, statement: sp.Basic, context: Context) -> StepResult:
        def verdicts() -> Iterator[Verdict]:
            for n in (2, 3):
                # outcomes are interchangeable: only the number of positive ones matters
                for signs in [(1,) * k + (-1,) * (n - k) for k in range(n + 1)]:

                    def values(i: int, signs: tuple[int, ...] = signs) -> dict[sp.Basic, sp.Expr]:
                        found = {self.first: signs[i] * nonneg(f"a{i}")}
                        if self.second is not None:
                            found[self.second] = nonneg(f"k{i}") ** 2
                        return found

                    lhs, rhs = (_outcomes(side, 0, n, values) for side in statement.args)
                    yield decide(statement.func(lhs, rhs, evaluate=False), {})

        return decide_all(verdicts(), "2..3 outcomes, any weights")


@dataclass(frozen=True)
class Definition(NoNeeds):
    """``rho_t = exp(l_t)``, the log importance ratio, or ``rho_t = r_t^2``, its root."""

    def run(self, statement: sp.Basic, context: Context) -> StepResult:
        p, q = sp.symbols("p_m q_m", positive=True)
        values = {rho[t]: q / p, ell_t[t]: sp.log(q / p), root[t]: sp.sqrt(q / p)}
        return from_verdict(decide(statement, values), "all positive probabilities")
