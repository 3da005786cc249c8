"""Asymptotic order in T, derived from a bound's sympy expression as ``lim log B / log T``.

Two regimes:

* ``small``: every divergence goes to zero first (KL, chi-square and squared Hellinger like
  ``lambda^2``, total variation like ``lambda``, the quartic moment like ``lambda^4``); the order is
  that of the leading coefficient in ``lambda``.
* ``capped``: divergences stay fixed and T grows.

Sums of a nondecreasing ``f`` are squeezed, ``int_k0^(n-1) f <= sum_(k<n) f(k) <= int_0^(n-1) f +
f(n-1)``, and the limit is taken on both sides; a minimum becomes the argument that ends smallest.
A per-position quantity counts as a constant in t.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

import sympy as sp

from bounds.quantities import BY_CONSTANT, BY_SYMBOL, Expectation, T

Regime = Literal["small", "capped"]

_LAMBDA = sp.Symbol("lambda", positive=True)
_N = sp.Symbol("n", positive=True)
_KINDS: dict[str, str] = {
    str(symbol): quantity.kind for symbol, quantity in (BY_SYMBOL | BY_CONSTANT).items()
}
_SCALE: dict[str | None, int] = {"kl": 2, "chi2": 2, "hellinger": 2, "quartic": 4, "tv": 1}
#: Largest power of lambda looked for when lower orders cancel.
_TAYLOR = 8


@dataclass(frozen=True)
class Order:
    """Growth in T: ``T**exponent``; ``exponent = oo`` stands for exponential growth."""

    exponent: sp.Expr

    def __str__(self) -> str:
        if self.exponent is sp.oo:
            return "exp(T)"
        if self.exponent == 0:
            return "1"
        if self.exponent == 1:
            return "T"
        return f"T^{self.exponent}" if self.exponent.is_Integer else f"T^({self.exponent})"


class _Underivable(Exception):
    """The expression is outside what this module derives."""


def orders(expression: sp.Expr) -> tuple[Order | None, Order | None]:
    """Order in T of ``expression`` for small and for fixed divergences.

    Args:
        expression: sympy expression in the symbols of :mod:`bounds.quantities`.

    Returns:
        ``(small, capped)``; None where the order cannot be derived (an expectation over a log).
    """
    # a number in front does not change the order; without it halves share a derivation
    _, body = expression.as_coeff_Mul()
    return order(body, "small"), order(body, "capped")


@cache
def order(expression: sp.Expr, regime: Regime) -> Order | None:
    """Order in T of ``expression`` in one regime; None where it cannot be derived."""
    if expression.has(Expectation):
        return None
    try:
        return Order(min(_growth(expression, regime))[1])
    except (_Underivable, NotImplementedError):
        return None


def _growth(expression: sp.Expr, regime: Regime) -> list[tuple[sp.Expr, sp.Expr]]:
    """``(-power of lambda, exponent of T)`` of each argument of an outermost minimum."""
    if isinstance(expression, sp.Min):
        return [pair for arg in expression.args for pair in _growth(arg, regime)]
    body, power = _flatten(_positive(expression)), sp.S.Zero
    if regime == "small":
        body, power = _leading(_scaled(body))
    lower, upper = (_exponent(side) for side in _squeeze(body))
    if lower != upper:
        raise _Underivable(expression)
    return [(-power, lower)]


def _positive(expression: sp.Expr) -> sp.Expr:
    """Quantities as positive constants: ``D[t]`` becomes one symbol, T and positions real."""
    expression = expression.xreplace(
        {a: sp.Symbol(str(a.base.label), positive=True) for a in expression.atoms(sp.Indexed)}
    )
    return expression.xreplace(
        {
            symbol: sp.Symbol(symbol.name, positive=True)
            for symbol in expression.free_symbols
            if _kind(symbol) in _SCALE
        }
    )


def _kind(symbol: sp.Symbol) -> str | None:
    """Kind of the quantity that a symbol of this name stands for."""
    return _KINDS.get(symbol.name)


def _scaled(expression: sp.Expr) -> sp.Expr:
    return expression.xreplace(
        {
            symbol: symbol * _LAMBDA ** _SCALE[kind]
            for symbol in expression.free_symbols
            if (kind := _kind(symbol)) in _SCALE
        }
    )


def _flatten(node: sp.Expr) -> sp.Expr:
    """Sums and products whose body does not depend on the position become multiples and powers."""
    if not node.args:
        return node
    args = [_flatten(arg) for arg in node.args] if not isinstance(node, sp.Tuple) else node.args
    if isinstance(node, (sp.Sum, sp.Product)):
        (index, low, high) = node.limits[0]
        body = args[0]
        if not body.has(index):
            count = sp.expand(high - low + 1)
            return body * count if isinstance(node, sp.Sum) else body**count
        return node.func(body, node.limits[0])
    if isinstance(node, sp.Tuple):
        return node
    return node.func(*args, evaluate=False) if isinstance(node, sp.Min) else node.func(*args)


def _leading(node: sp.Expr) -> tuple[sp.Expr, sp.Expr]:
    """``(coefficient, power)`` of the leading term as lambda goes to 0."""
    if not node.has(_LAMBDA):
        return node, sp.S.Zero
    if node == _LAMBDA:
        return sp.S.One, sp.S.One
    if isinstance(node, sp.Mul):
        parts = [_leading(arg) for arg in node.args]
        return sp.Mul(*[c for c, _ in parts]), sp.Add(*[p for _, p in parts])
    if isinstance(node, sp.Pow) and not node.exp.has(_LAMBDA):
        coefficient, power = _leading(node.base)
        if power == 0 or node.exp.is_number:
            return coefficient**node.exp, power * node.exp
    if isinstance(node, sp.Min):
        parts = [_leading(arg) for arg in node.args]
        top = max(power for _, power in parts)
        return sp.Min(*[c for c, p in parts if p == top], evaluate=False), top
    if isinstance(node, sp.Sum):
        coefficient, power = _leading(node.function)
        return _flatten(sp.Sum(coefficient, *node.limits)), power
    if isinstance(node, sp.Add):
        parts = [_leading(arg) for arg in node.args]
        least = min(power for _, power in parts)
        if sp.simplify(sp.Add(*[c for c, p in parts if p == least])) == 0:
            # the lowest order cancels: the smooth terms together start at a higher one
            rough = [arg for arg in node.args if arg.has(sp.Min, sp.Sum)]
            parts = [_leading(arg) for arg in rough]
            parts.append(_taylor(sp.Add(*[arg for arg in node.args if arg not in rough])))
            least = min(power for _, power in parts)
        return sp.Add(*[c for c, p in parts if p == least]), least
    raise _Underivable(node)


def _taylor(node: sp.Expr) -> tuple[sp.Expr, sp.Expr]:
    """Leading term of a smooth sum whose lowest orders cancel, by differentiation at 0."""
    if node.has(sp.Min, sp.Sum):
        raise _Underivable(node)
    derivative = node
    for power in range(1, _TAYLOR + 1):
        derivative = sp.diff(derivative, _LAMBDA)
        value = sp.factor(sp.simplify(derivative.subs(_LAMBDA, 0)))
        if value != 0:
            return value / sp.factorial(power), sp.Integer(power)
    raise _Underivable(node)


def _squeeze(node: sp.Expr) -> tuple[sp.Expr, sp.Expr]:
    """Expressions without sums or minima, in T, that bracket the growth of ``node``."""
    if not node.has(sp.Sum, sp.Min, sp.Product):
        return node, node
    if isinstance(node, sp.Min):
        least = _smallest(node, T)
        return _squeeze(least)
    if isinstance(node, sp.Sum):
        return _squeeze_sum(node)
    if isinstance(node, (sp.Add, sp.Mul, sp.Pow)):
        pairs = [_squeeze(arg) for arg in node.args]
        return node.func(*[low for low, _ in pairs]), node.func(*[high for _, high in pairs])
    raise _Underivable(node)


def _smallest(node: sp.Expr, variable: sp.Symbol) -> sp.Expr:
    """The argument of ``Min`` that is smallest, up to constants, as ``variable`` grows."""
    best = node.args[0]
    for candidate in node.args[1:]:
        if _exponent(_squeeze_in(candidate, variable), variable) < _exponent(
            _squeeze_in(best, variable), variable
        ):
            best = candidate
    return best


def _squeeze_in(node: sp.Expr, variable: sp.Symbol) -> sp.Expr:
    if variable == T:
        return _squeeze(node)[1]
    if node.has(sp.Sum, sp.Product):
        raise _Underivable(node)
    return node.replace(lambda e: isinstance(e, sp.Min), lambda e: _smallest(e, variable))


def _squeeze_sum(node: sp.Expr) -> tuple[sp.Expr, sp.Expr]:
    index, low, high = node.limits[0]
    if (low, high) != (1, T) or node.function.has(sp.Sum, sp.Product):
        raise _Underivable(node)
    body = sp.S.Zero
    for start in (T - _N, _N + 1):
        candidate = node.function.subs(index, start)
        if not candidate.has(T):
            body = candidate
            break
    else:
        raise _Underivable(node)
    body = body.replace(lambda e: isinstance(e, sp.Min), lambda e: _smallest(e, _N))
    body = body.replace(
        lambda e: isinstance(e, sp.Pow) and e.exp.has(_N), lambda e: _exponential(e, _N)
    )
    slope = sp.diff(body, _N)
    if not (slope.is_nonnegative or sp.factor(slope).is_nonnegative):
        raise _Underivable(node)
    primitive = sp.integrate(sp.powsimp(body), _N)
    at_end = primitive.subs(_N, T - 1)
    start_at = sp.Symbol("k_0", positive=True)
    lower = at_end - primitive.subs(_N, start_at)
    upper = at_end - primitive.subs(_N, 0) + body.subs(_N, T - 1)
    return lower, upper


@cache
def _exponent(node: sp.Expr, variable: sp.Symbol = T) -> sp.Expr:
    """``lim log(node) / log(variable)``, constants being positive."""
    free = sp.Symbol("z", positive=True)
    value = node.xreplace({variable: free})
    if not value.has(free):
        return sp.S.Zero
    value = value.replace(
        lambda e: isinstance(e, sp.Pow) and e.exp.has(free),
        lambda e: _exponential(e, free),
    )
    if isinstance(value, sp.Mul):
        return sp.Add(*[_exponent(arg, free) for arg in value.args])
    if isinstance(value, sp.Pow) and value.exp.is_number:
        return value.exp * _exponent(value.base, free)
    limit = sp.limit(sp.log(value) / sp.log(free), free, sp.oo)
    if not (limit.is_number or limit is sp.oo):
        raise _Underivable(node)
    return limit


def _exponential(power: sp.Expr, variable: sp.Symbol) -> sp.Expr:
    """``a**z`` with a constant a as ``exp(c z)`` or ``exp(-c z)``, c > 0.

    ``1 - a`` above 0 means ``0 <= a < 1``: such powers are affinities.
    """
    rate = sp.Symbol("c", positive=True)
    if power.base.has(variable):
        raise _Underivable(power)
    if (power.base - 1).is_positive:
        return sp.exp(rate * power.exp)
    if (1 - power.base).is_positive:
        return sp.exp(-rate * power.exp)
    raise _Underivable(power)
