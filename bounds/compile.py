"""Numeric evaluation generated from the registry's sympy expressions, for numpy and torch.

A registry expression holds ``Sum`` and ``Product`` over positions. Two ways to evaluate them:

* **closed form**, when every per-position input is a constant: sums of ``min`` of power laws become
  Euler-Maclaurin power sums between the crossings, geometric sums become ``binomial_excess``. O(1)
  memory in T, and T itself may be an array.
* **along the position axis**, when a per-position array of length T is given: inner sums over the
  past or the future become exclusive cumulative sums. O(T) memory, as large as the input.

Differences such as ``exp(a) - 1`` and ``prod(1 + x) - 1`` are evaluated by ``expm1``/``log1p``.
Everything is float64; inputs that are torch tensors give torch tensors, on their device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import array_api_compat
import numpy as np
import sympy as sp

from bounds import quantities as q
from bounds.quantities import BY_CONSTANT, BY_SYMBOL, Expectation, constant
from bounds.special import Array, binomial_excess, sum_of_least_power

#: Positions evaluated at once by the fallback for sums that have no closed form here.
_CHUNK = 1024


@dataclass(frozen=True)
class Positions:
    """Values of a per-position quantity.

    Attributes:
        values: float64 array; shape ``[..., n]`` (one value per position), or ``[...]`` when
            ``constant`` (the same value bounds every position).
        constant: whether one value stands for all positions.
    """

    values: Array
    constant: bool


Inputs = Mapping[str, Array | Positions]


def evaluate_expression(expression: sp.Expr, inputs: Inputs) -> Array:
    """Value of ``expression`` at ``inputs``.

    Args:
        expression: sympy expression in the symbols of :mod:`bounds.quantities`.
        inputs: quantity name -> float64 array (scalar quantities, broadcast against each other)
            or :class:`Positions`.

    Returns:
        float64 array of the broadcast shape; ``inf`` on overflow, NaN for ``0 * inf``.

    Raises:
        KeyError: a quantity that the expression needs is missing.
    """
    arrays = [v.values if isinstance(v, Positions) else v for v in inputs.values()]
    xp = array_api_compat.array_namespace(*arrays)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        return _Evaluator(xp, inputs).value(sp.sympify(expression))


def evaluate_positions(expression: sp.Expr, inputs: Inputs) -> Positions:
    """Value of a per-position expression (free in ``t``) at every position.

    Constant when all per-position inputs that it uses are.
    """
    arrays = [v.values if isinstance(v, Positions) else v for v in inputs.values()]
    evaluator = _Evaluator(array_api_compat.array_namespace(*arrays), inputs)
    if evaluator.n is not None and evaluator.has_arrays(expression):
        axis = evaluator.grid(1, evaluator.n + 1)
        return Positions(evaluator.value(expression, q.t, axis), constant=False)
    return Positions(evaluator.value(_with_constants(expression)), constant=True)


def integrand(expression: sp.Expr) -> sp.Expr:
    """``c f`` of an expression ``c E[f]``: one number per row."""
    coefficient, rest = expression.as_independent(Expectation)
    if not isinstance(rest, Expectation):
        raise ValueError(f"{expression} is not a multiple of one expectation")
    return coefficient * rest.args[0]


def _with_constants(expression: sp.Expr) -> sp.Expr:
    return expression.xreplace(
        {indexed: constant(indexed.base) for indexed in expression.atoms(sp.Indexed)}
    )


@dataclass(frozen=True)
class _Constant:
    """``sum_t body = T body``."""

    body: sp.Expr


@dataclass(frozen=True)
class _Geometric:
    """``factor * sum_{k<T} x ((1+x)^k - 1) = factor * ((1+x)^T - 1 - T x)``."""

    growth: sp.Expr
    factor: sp.Expr


@dataclass(frozen=True)
class _LeastPower:
    """``coefficient * sum_{k<T} min_i c_i k^{p_i}``, some ``p_i > 0``."""

    coefficient: sp.Expr
    terms: tuple[tuple[sp.Expr, float], ...]


@lru_cache(maxsize=4096)
def _recognise(total: sp.Sum) -> _Constant | _Geometric | _LeastPower | sp.Expr:
    """The closed form of a sum over t whose per-position inputs are constants, else its body."""
    body = _with_constants(total.function)
    body = body.xreplace({node: node.doit() for node in body.atoms(sp.Sum, sp.Product)})
    if q.t not in body.free_symbols:
        return _Constant(body)
    coefficient, rest = body.as_independent(q.t, as_Add=False)
    stepped = _in_steps(rest)
    if stepped is None:
        return body
    rest, k = stepped
    geometric = _as_geometric_excess(coefficient * rest, k)
    if geometric is not None:
        return geometric
    terms = _powers(rest, k)
    return body if terms is None else _LeastPower(coefficient, terms)


def _in_steps(body: sp.Expr) -> tuple[sp.Expr, sp.Symbol] | None:
    """``body`` as a function of ``k = t - 1`` or ``k = T - t`` alone (k = 0..T-1), if it is one."""
    k = sp.Symbol("k", integer=True, nonnegative=True)
    for position in (k + 1, q.T - k):
        candidate = body.subs(q.t, position)
        if q.t not in candidate.free_symbols and q.T not in candidate.free_symbols:
            return candidate, k
    return None


def _powers(body: sp.Expr, k: sp.Symbol) -> tuple[tuple[sp.Expr, float], ...] | None:
    """``body = min_i c_i k^{p_i}`` as pairs ``(c_i, p_i)``, or None when it is not of that form."""
    terms: dict[sp.Expr, sp.Expr] = {}
    for argument in body.args if isinstance(body, sp.Min) else (body,):
        coefficient, power = argument.as_independent(k, as_Add=False)
        base, exponent = power.as_base_exp() if power != 1 else (k, sp.Integer(0))
        if base != k or not exponent.is_number or exponent < 0:
            return None
        terms[exponent] = sp.Min(terms[exponent], coefficient) if exponent in terms else coefficient
    return tuple((c, float(p)) for p, c in terms.items())


@lru_cache(maxsize=4096)
def _number(e: sp.Expr) -> float | None:
    return float(e) if not isinstance(e, sp.Sum | sp.Product) and e.is_number else None


@lru_cache(maxsize=4096)
def _is_zero(expression: sp.Expr) -> bool:
    return bool(sp.simplify(expression) == 0)


class _Evaluator:
    """Walks an expression. ``along`` is the position symbol of the last axis, or None (no axis)."""

    def __init__(self, xp: Any, inputs: Inputs) -> None:
        self.xp = xp
        self.inputs = inputs
        lengths = {
            v.values.shape[-1]
            for v in inputs.values()
            if isinstance(v, Positions) and not v.constant
        }
        if len(lengths) > 1:
            raise ValueError(f"per-position inputs differ in length: {sorted(lengths)}")
        self.n: int | None = lengths.pop() if lengths else None
        first = next(iter(inputs.values()))
        self.like = first.values if isinstance(first, Positions) else first

    # -- leaves ---------------------------------------------------------------------------------

    def number(self, value: float) -> Array:
        xp = self.xp
        return xp.full((), value, dtype=xp.float64, device=array_api_compat.device(self.like))

    def scalar(self, name: str, along: sp.Symbol | None) -> Array:
        value = self.inputs[name]
        array = value.values if isinstance(value, Positions) else value
        return array if along is None else array[..., None]

    def grid(self, start: int, stop: int) -> Array:
        xp = self.xp
        return xp.arange(start, stop, dtype=xp.float64, device=array_api_compat.device(self.like))

    # -- recursion ------------------------------------------------------------------------------

    def value(self, e: sp.Expr, along: sp.Symbol | None = None, axis: Array | None = None) -> Array:
        xp = self.xp
        number = _number(e)
        if number is not None:
            return self.number(number)
        if isinstance(e, sp.Symbol):
            if along is not None and e == along:
                return axis
            return self.scalar((BY_CONSTANT.get(e) or BY_SYMBOL[e]).name, along)
        if isinstance(e, sp.Indexed):
            given = self.inputs[BY_SYMBOL[e.base.label].name]
            assert isinstance(given, Positions)
            return given.values[..., None] if given.constant else given.values
        if isinstance(e, sp.Sum | sp.Product):
            return self.over_positions(e, along)
        if isinstance(e, sp.Add):
            return self.add(e, along, axis)
        if isinstance(e, sp.Mul):
            result = self.value(e.args[0], along, axis)
            for argument in e.args[1:]:
                result = result * self.value(argument, along, axis)
            return result
        if isinstance(e, sp.exp):
            return xp.exp(self.value(e.args[0], along, axis))
        if isinstance(e, sp.Pow):
            return self.power(e, along, axis)
        if isinstance(e, sp.Min | sp.Max):
            pick = xp.minimum if isinstance(e, sp.Min) else xp.maximum
            result = self.value(e.args[0], along, axis)
            for argument in e.args[1:]:
                result = pick(*xp.broadcast_arrays(result, self.value(argument, along, axis)))
            return result
        if isinstance(e, sp.Abs):
            return xp.abs(self.value(e.args[0], along, axis))
        if isinstance(e, sp.log):
            if _signed(e.args[0] - 1):
                return xp.log1p(self.value(e.args[0] - 1, along, axis))
            return xp.log(self.value(e.args[0], along, axis))
        if isinstance(e, sp.tanh | sp.sinh):
            return getattr(xp, type(e).__name__)(self.value(e.args[0], along, axis))
        if isinstance(e, Expectation):
            return xp.mean(self.value(e.args[0]), axis=-1)
        raise NotImplementedError(f"no numeric rule for {type(e).__name__} in {e}")

    def add(self, e: sp.Add, along: sp.Symbol | None, axis: Array | None) -> Array:
        args = list(e.args)
        excess = _as_binomial_excess(e)
        if excess is not None:
            growth, exponent = excess
            one, two = self.value(growth, along, axis), self.value(exponent, along, axis)
            return binomial_excess(self.xp, *self.xp.broadcast_arrays(one, two))
        total: Array | None = None
        for number in [argument for argument in args if argument.is_number]:
            for argument in args:
                # c (X - 1) with the logarithm of X at hand
                coefficient, rest = argument.as_coeff_Mul()
                logarithm = self.log_of(rest, along, axis) if coefficient == -number else None
                if logarithm is not None:
                    args.remove(argument)
                    args.remove(number)
                    total = float(coefficient) * self.xp.expm1(logarithm)
                    break
        for argument in args:
            term = self.value(argument, along, axis)
            total = term if total is None else total + term
        return total

    def log_of(self, e: sp.Expr, along: sp.Symbol | None, axis: Array | None) -> Array | None:
        """Logarithm of ``exp(a)``, ``(1 + x)^n`` or ``prod(1 + x_j)``, else None."""
        if isinstance(e, sp.exp):
            return self.value(e.args[0], along, axis)
        if isinstance(e, sp.Product):
            return self.over_positions(sp.Sum(sp.log(e.function), *e.limits), along)
        if isinstance(e, sp.Pow) and _signed(e.base - 1):
            return self.value(e.exp, along, axis) * self.log1p(e.base, along, axis)
        return None

    def log1p(self, base: sp.Expr, along: sp.Symbol | None, axis: Array | None) -> Array:
        return self.xp.log1p(self.value(base - 1, along, axis))

    def power(self, e: sp.Pow, along: sp.Symbol | None, axis: Array | None) -> Array:
        base = self.value(e.base, along, axis)
        if e.exp == sp.S.Half:
            return self.xp.sqrt(base)
        if e.exp.is_number:
            exponent = float(e.exp)
            if exponent == 2:
                return base * base
            if exponent == 1.5:
                return base * self.xp.sqrt(base)
            return base**exponent
        return base ** self.value(e.exp, along, axis)

    # -- sums over positions --------------------------------------------------------------------

    def over_positions(self, e: sp.Sum | sp.Product, along: sp.Symbol | None) -> Array:
        (index, lower, upper) = e.limits[0]
        if isinstance(e, sp.Product):
            return self.xp.exp(self.over_positions(sp.Sum(sp.log(e.function), e.limits[0]), along))
        if along is None:
            if self.n is None or not self.has_arrays(e):
                return self.closed_form(e)
            values = self.body_along(e.function, index, self.n)
            return self.xp.sum(values, axis=-1)
        if self.n is None:
            raise NotImplementedError(f"{e} inside a sum over constants was not reduced")
        values = self.body_along(e.function, index, self.n)
        return self.partial(values, lower, upper, along)

    def has_arrays(self, e: sp.Expr) -> bool:
        for indexed in e.atoms(sp.Indexed):
            given = self.inputs[BY_SYMBOL[indexed.base.label].name]
            if isinstance(given, Positions) and not given.constant:
                return True
        return False

    def body_along(self, body: sp.Expr, index: sp.Symbol, n: int) -> Array:
        xp = self.xp
        values = self.value(body, index, self.grid(1, n + 1))
        return xp.broadcast_to(values, (*values.shape[:-1], n))

    def partial(self, values: Array, lower: sp.Expr, upper: sp.Expr, along: sp.Symbol) -> Array:
        """Exclusive cumulative sum over the past (1..t-1) or the future (t+1..T)."""
        xp = self.xp
        edge = xp.zeros_like(values[..., :1])
        if lower == 1 and _is_zero(upper - along + 1):
            return xp.concat([edge, xp.cumulative_sum(values, axis=-1)[..., :-1]], axis=-1)
        if _is_zero(lower - along - 1) and upper == q.T:
            backwards = xp.cumulative_sum(xp.flip(values, axis=-1), axis=-1)[..., :-1]
            return xp.flip(xp.concat([edge, backwards], axis=-1), axis=-1)
        raise NotImplementedError(f"no cumulative form for the range {lower}..{upper}")

    def closed_form(self, total: sp.Sum) -> Array:
        form = _recognise(total)
        if isinstance(form, _Constant):
            return self.value(q.T) * self.value(form.body)
        if isinstance(form, _Geometric):
            arrays = self.xp.broadcast_arrays(self.value(form.growth), self.value(q.T))
            return self.value(form.factor) * binomial_excess(self.xp, *arrays)
        if isinstance(form, _LeastPower):
            values = [self.value(c) for c, _ in form.terms]
            arrays = self.xp.broadcast_arrays(self.value(q.T), *values)
            terms = [(c, p) for c, (_, p) in zip(arrays[1:], form.terms, strict=True)]
            total_value = sum_of_least_power(self.xp, arrays[0] - 1, terms)
            return self.value(form.coefficient) * total_value
        return self.direct_sum(form)

    def direct_sum(self, body: sp.Expr) -> Array:
        """Sum over t by chunks of positions: right for any body, O(T) time, bounded memory."""
        horizon = self.value(q.T)
        longest = int(self.xp.max(horizon))
        total: Array = horizon * 0
        for start in range(1, longest + 1, _CHUNK):
            axis = self.grid(start, min(start + _CHUNK, longest + 1))
            values = self.value(body, q.t, axis)
            inside = axis <= horizon[..., None]
            values, inside = self.xp.broadcast_arrays(values, inside)
            total = total + self.xp.sum(
                self.xp.where(inside, values, self.xp.zeros_like(values)), axis=-1
            )
        return total


@lru_cache(maxsize=4096)
def _as_binomial_excess(e: sp.Add) -> tuple[sp.Expr, sp.Expr] | None:
    """``(x, n)`` when ``e`` is ``(1 + x)^n - 1 - n x``."""
    if len(e.args) != 3:
        return None
    for argument in e.args:
        if isinstance(argument, sp.Pow) and (argument.base - 1).is_nonnegative:
            growth, exponent = argument.base - 1, argument.exp
            if sp.expand(e - argument + 1 + exponent * growth) == 0:
                return growth, exponent
    return None


def _as_geometric_excess(body: sp.Expr, k: sp.Symbol) -> _Geometric | None:
    """``c x ((1 + x)^k - 1)`` with a number c, whose sum over k < T is c ``binomial_excess``."""
    for power in body.atoms(sp.Pow):
        growth = power.base - 1
        if power.exp != k or not _signed(growth):
            continue
        factor = sp.cancel(body / (growth * (power - 1)))
        if factor.is_number:
            return _Geometric(growth, factor)
    return None


def _signed(expression: sp.Expr) -> bool:
    """Whether the sign is known and the value is not a plain number."""
    known = expression.is_nonnegative or expression.is_nonpositive
    return bool(known and expression.free_symbols)
