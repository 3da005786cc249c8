"""What checkers share: model symbols, interpretation of statements, verdicts as results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product

import sympy as sp

from bounds.atoms import E
from bounds.proof import StepResult
from bounds.prover import Verdict, prove_eq, prove_le
from bounds.quantities import T

HALF = sp.Rational(1, 2)


def nonneg(name: str) -> sp.Symbol:
    return sp.Symbol(f"{name}_m", nonnegative=True)


def real(name: str) -> sp.Symbol:
    return sp.Symbol(f"{name}_m", real=True)


def is_model(symbol: sp.Basic) -> bool:
    return isinstance(symbol, sp.Symbol) and symbol.name.endswith("_m")


def checked(method: str, scope: str) -> StepResult:
    return StepResult("checked", method, scope)


def from_verdict(verdict: Verdict, scope: str) -> StepResult:
    if verdict:
        return checked(verdict.method, scope)
    if verdict.outcome == "refuted":
        return StepResult("refuted", verdict.method, scope, verdict.detail)
    return StepResult("assumed", "none", scope, "not proven, and no counterexample found")


def unroll(expression: sp.Basic, horizon: int) -> sp.Basic:
    """The expression at ``T = horizon`` with every sum and product written out.

    Raises:
        ValueError: a limit that is not an integer.
    """
    expression = expression.subs(T, horizon)
    if isinstance(expression, (sp.Sum, sp.Product)):
        index, low, high = expression.limits[-1]
        body = expression.function
        if expression.limits[1:]:
            body = expression.func(body, *expression.limits[:-1])
        if not (low.is_Integer and high.is_Integer):
            raise ValueError(f"limits {low}..{high} are not integers")
        terms = [unroll(body.subs(index, i), horizon) for i in range(int(low), int(high) + 1)]
        return sp.Add(*terms) if isinstance(expression, sp.Sum) else sp.Mul(*terms)
    if not expression.has(sp.Sum, sp.Product):
        return expression
    return expression.func(*[unroll(argument, horizon) for argument in expression.args])


def interpret(expression: sp.Basic, values: Mapping[sp.Basic, sp.Expr]) -> sp.Expr:
    """The expression in model symbols only.

    Raises:
        ValueError: something in it has no interpretation.
    """
    result = expression.xreplace(dict(values))
    left = [a for a in result.free_symbols if not is_model(a)]
    if left or result.has(E):
        raise ValueError(f"{left or result} has no interpretation in this lemma's model")
    return result


def decide(statement: sp.Basic, values: Mapping[sp.Basic, sp.Expr]) -> Verdict:
    """Prove the statement in the model; lemmas with the same model share the work."""
    lhs, rhs = (interpret(side, values) for side in statement.args)
    return _eq(lhs, rhs) if isinstance(statement, sp.Eq) else _le(lhs, rhs)


@cache
def _eq(lhs: sp.Expr, rhs: sp.Expr) -> Verdict:
    return prove_eq(lhs, rhs)


@cache
def _le(lhs: sp.Expr, rhs: sp.Expr) -> Verdict:
    return prove_le(lhs, rhs)


def decide_all(verdicts: Iterator[Verdict], scope: str) -> StepResult:
    methods: list[str] = []
    for verdict in verdicts:
        if not verdict:
            return from_verdict(verdict, scope)
        if verdict.method not in methods:
            methods.append(verdict.method)
    if not methods:
        raise ValueError("the model has no case")
    return checked(", ".join(methods), scope)


def _signs(n: int) -> Iterator[tuple[int, ...]]:
    """Sign patterns with both signs, up to order: k positive, then n - k negative."""
    for k in range(1, n):
        yield (1,) * k + (-1,) * (n - k)


def zero_sum(n: int) -> Iterator[list[sp.Expr]]:
    """All zero-sum vectors of length n, by sign pattern, as transports of nonnegative mass."""
    for signs in _signs(n):
        u = [sp.S.Zero] * n
        for i, k in product(range(n), repeat=2):
            if signs[i] > 0 > signs[k]:
                moved = nonneg(f"w{i}{k}")
                u[i] += moved
                u[k] -= moved
        yield u


def gains(expression: sp.Expr) -> bool:
    """Sign of a transported mass: all its coefficients have one sign."""
    return bool(sp.Poly(expression).coeffs()[0] > 0)


class NoNeeds:
    def needs(self) -> tuple[str, ...]:
        return ()
