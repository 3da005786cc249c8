"""Proves that an expression is nonnegative on a domain, or finds a certified counterexample.

Tried in order: symbolic (zero, nonnegative coefficients, signs of factors), sum of squares by
AM-GM pairs, derivative certificates, interval branch and bound on a compact box; then a search for
a point where interval arithmetic certifies a negative value. "unknown" is never "proven".
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any, Literal

import mpmath
import sympy as sp
from sympy.polys.polyerrors import BasePolynomialError

Outcome = Literal["proven", "refuted", "unknown"]
#: symbol -> (lowest, highest); a bound may be infinite.
Domain = Mapping[sp.Symbol, tuple[sp.Expr, sp.Expr]]

_BOXES = 4000
_POINTS = 300
_MAX_BRANCHES = 4096


@dataclass(frozen=True)
class Verdict:
    """Outcome of a proof attempt.

    Attributes:
        outcome: proven, refuted or unknown.
        method: which technique decided.
        detail: the witness of a refutation.
    """

    outcome: Outcome
    method: str = "none"
    detail: str = ""

    def __bool__(self) -> bool:
        return self.outcome == "proven"


UNKNOWN = Verdict("unknown")


def prove_nonneg(expression: sp.Expr, domain: Domain | None = None) -> Verdict:
    """Decide ``expression >= 0`` on ``domain``.

    Args:
        expression: sympy expression in real symbols.
        domain: range of each symbol. Symbols left out range over what their assumptions say
            (``nonnegative``: [0, oo); otherwise all reals).
    """
    if not domain and _coefficients(sp.expand(expression)):
        return Verdict("proven", "symbolic")
    ranges = _ranges(expression, domain or {})
    shifted = _to_nonnegative(expression, ranges)
    for attempt in (_symbolic, _squares):
        verdict = attempt(shifted)
        if verdict:
            return verdict
    box = all(low.is_finite and high.is_finite for low, high in ranges.values())
    witness = _search(expression, ranges)
    if witness:
        return Verdict("refuted", "interval", witness)
    if box and _branch_and_bound(expression, ranges):
        return Verdict("proven", "interval")
    return UNKNOWN


def _ranges(expression: sp.Expr, domain: Domain) -> dict[sp.Symbol, tuple[sp.Expr, sp.Expr]]:
    ranges = {}
    for symbol in sorted(expression.free_symbols, key=str):
        default = (sp.S.Zero if symbol.is_nonnegative else -sp.oo, sp.oo)
        low, high = domain.get(symbol, default)
        ranges[symbol] = (sp.sympify(low), sp.sympify(high))
    return ranges


def _to_nonnegative(
    expression: sp.Expr, ranges: Mapping[sp.Symbol, tuple[sp.Expr, sp.Expr]]
) -> sp.Expr:
    """Each symbol with a range as a rational function of a nonnegative symbol."""
    replace = {}
    for symbol, (low, high) in ranges.items():
        fresh = sp.Symbol(f"{symbol.name}_", nonnegative=True)
        if low.is_finite and high.is_finite:
            replace[symbol] = (low + high * fresh) / (1 + fresh)
        elif low.is_finite:
            replace[symbol] = low + fresh
    return expression.subs(replace, simultaneous=True) if replace else expression


def _symbolic(expression: sp.Expr) -> Verdict:
    expanded = sp.expand(expression)
    if expanded == 0:
        return Verdict("proven", "symbolic")
    numerator, denominator = sp.fraction(sp.together(expanded))
    if _signs(denominator) and (_coefficients(numerator) or _signs(numerator)):
        return Verdict("proven", "symbolic")
    return UNKNOWN


def _coefficients(expression: sp.Expr) -> bool:
    """Polynomial with nonnegative coefficients in nonnegative symbols."""
    if not expression.free_symbols:
        return bool(expression.is_nonnegative)
    try:
        polynomial = sp.Poly(expression)
    except BasePolynomialError:
        return False
    return all(
        all(g.is_nonnegative or power % 2 == 0 for g, power in zip(polynomial.gens, m, strict=True))
        and c.is_nonnegative
        for m, c in polynomial.terms()
    )


def _signs(expression: sp.Expr) -> bool:
    if expression.is_nonnegative:
        return True
    factored = sp.factor(expression)
    if factored.is_nonnegative:
        return True
    negative = False
    for factor in sp.Mul.make_args(factored):
        base, power = factor.as_base_exp()
        if power.is_even and base.is_real:
            continue
        if factor.is_nonnegative or _coefficients(factor):
            continue
        if factor.is_nonpositive or _coefficients(-factor):
            negative = not negative
            continue
        return False
    return not negative


def _squares(expression: sp.Expr) -> Verdict:
    """Sum of squares: pair each negative monomial with two positive ones by AM-GM.

    For nonnegative symbols, ``A + B - 2 sqrt(AB) = (sqrt A - sqrt B)^2``.
    """
    numerator, denominator = sp.fraction(sp.together(expression))
    if not _signs(denominator) or not numerator.free_symbols:
        return UNKNOWN
    try:
        polynomial = sp.Poly(numerator)
    except BasePolynomialError:
        return UNKNOWN
    if not all(g.is_real for g in polynomial.gens) or not polynomial.domain.is_Numerical:
        return UNKNOWN
    even = [i for i, g in enumerate(polynomial.gens) if not g.is_nonnegative]
    terms = {m: sp.nsimplify(c) for m, c in polynomial.terms()}
    positive = {m: c for m, c in terms.items() if c > 0 and all(m[i] % 2 == 0 for i in even)}
    for m, c in terms.items():
        if m in positive:
            continue
        need = abs(c)
        for a in list(positive):
            b = tuple(2 * i - k for i, k in zip(m, a, strict=True))
            if b == a or b not in positive or any(i < 0 for i in b):
                continue
            take = min(positive[a], positive[b], need / 2)
            positive[a] -= take
            positive[b] -= take
            need -= 2 * take
            if need == 0:
                break
        if need != 0:
            return UNKNOWN
    return Verdict("proven", "sum-of-squares")


# derivative certificates -------------------------------------------------------------------------


def prove_by_derivative(
    expression: sp.Expr, variable: sp.Symbol, at: sp.Expr, domain: Domain
) -> Verdict:
    """``f >= 0`` because ``f = 0`` at ``variable = at`` and ``f' = (variable - at) h``, ``h >= 0``.

    Args:
        expression: f, smooth on the domain.
        variable: the variable that moves.
        at: where f vanishes; must lie in the domain.
        domain: ranges of all symbols, taken as open where f is singular.
    """
    if sp.simplify(expression.subs(variable, at)) != 0:
        return _refute(expression, domain)
    slope = sp.factor(sp.together(sp.diff(expression, variable)))
    rest = sp.cancel(sp.together(slope / (variable - at)))
    if sp.simplify(rest * (variable - at) - slope) != 0:
        return UNKNOWN
    shifted = _to_nonnegative(rest, _ranges(rest, domain))
    if _symbolic(shifted) or _squares(shifted):
        return Verdict("proven", "derivative certificate")
    return _refute(expression, domain)


def prove_by_convexity(expression: sp.Expr, variable: sp.Symbol, at: sp.Expr) -> Verdict:
    """``f >= 0``: f and f' vanish at ``variable = at`` and ``f'' >= 0`` (positive symbols)."""
    slope = sp.diff(expression, variable)

    def vanishes(value: sp.Expr) -> bool:
        return bool(sp.simplify(sp.expand_log(value.subs(variable, at), force=True)) == 0)

    if not (vanishes(expression) and vanishes(slope)):
        return _refute(expression, {})
    curvature = sp.factor(sp.together(sp.diff(slope, variable)))
    if _symbolic(curvature):
        return Verdict("proven", "convexity certificate")
    return _refute(expression, {})


def _refute(expression: sp.Expr, domain: Domain) -> Verdict:
    witness = _search(expression, _ranges(expression, domain))
    return Verdict("refuted", "interval", witness) if witness else UNKNOWN


# intervals ---------------------------------------------------------------------------------------


def interval_value(expression: sp.Expr, point: Mapping[sp.Basic, Any]) -> Any:
    """Enclosure (mpmath.iv) of the expression over a box of intervals.

    Raises:
        ValueError: a function without an interval version, or a value outside its domain.
    """
    iv = mpmath.iv
    if expression in point:
        return point[expression]
    if expression.is_Rational:
        return iv.mpf(int(expression.p)) / int(expression.q)
    if expression is sp.pi:
        return iv.pi
    values = [interval_value(argument, point) for argument in expression.args[:2]]
    if isinstance(expression, (sp.Add, sp.Mul)):
        value = values[0]
        for argument in expression.args[1:]:
            other = interval_value(argument, point)
            value = value + other if isinstance(expression, sp.Add) else value * other
        return value
    if isinstance(expression, sp.Pow):
        return _interval_power(values[0], expression.exp, values[1])
    if isinstance(expression, sp.log):
        if not values[0].a > 0:
            raise ValueError("logarithm at 0")
        return iv.log(values[0])
    if isinstance(expression, sp.exp):
        return iv.exp(values[0])
    if isinstance(expression, sp.Abs):
        return abs(values[0])
    raise ValueError(f"no interval version of {type(expression).__name__}")


def _interval_power(base: Any, exponent: sp.Expr, value: Any) -> Any:
    if exponent.is_Integer:
        if exponent < 0:
            if 0 in base:
                raise ValueError("division by zero")
            return 1 / _interval_power(base, -exponent, value)
        return base ** int(exponent)
    if base.b < 0:
        raise ValueError("root of a negative number")
    if exponent == sp.Rational(1, 2):
        return mpmath.iv.sqrt(mpmath.iv.mpf([max(base.a, mpmath.iv.mpf(0)).a, base.b]))
    if not base.a > 0:
        raise ValueError("power at 0")
    return base**value


def _search(expression: sp.Expr, ranges: Mapping[sp.Symbol, tuple[sp.Expr, sp.Expr]]) -> str:
    """A rational point with a certified negative value, in words; empty if none is found."""
    draw = random.Random(0)
    rough = sp.lambdify(list(ranges), expression, modules="math")
    for _ in range(_POINTS):
        point: dict[sp.Symbol, Fraction] = {}
        for symbol, (low, high) in ranges.items():
            share = Fraction(draw.randint(1, 63), 64)
            if low.is_finite and high.is_finite:
                a, b = (Fraction(int(v.p), int(v.q)) for v in map(sp.Rational, (low, high)))
                point[symbol] = a + (b - a) * share
            else:
                scale = Fraction(draw.choice((1, 1, 4, 20)), draw.choice((1, 2, 5, 30)))
                start = Fraction(str(sp.Rational(low))) if low.is_finite else Fraction(0)
                sign = 1 if low.is_finite else draw.choice((-1, 1))
                point[symbol] = start + sign * share * scale
        try:
            if not rough(*map(float, point.values())) < 0:
                continue
            boxed = {k: mpmath.iv.mpf(v.numerator) / v.denominator for k, v in point.items()}
            value = interval_value(expression, boxed)
        except (ValueError, ZeroDivisionError, OverflowError, TypeError):
            continue
        if value.b < 0:
            where = ", ".join(f"{k} = {v}" for k, v in point.items())
            return f"negative at {where or 'every point'}"
    return ""


def _branch_and_bound(
    expression: sp.Expr, ranges: Mapping[sp.Symbol, tuple[sp.Expr, sp.Expr]]
) -> bool:
    """Whether subdividing the box proves the expression nonnegative on all of it."""
    symbols = list(ranges)
    boxes = [tuple((sp.Rational(low), sp.Rational(high)) for low, high in ranges.values())]
    seen = 0
    while boxes:
        box = boxes.pop()
        seen += 1
        if seen > _BOXES:
            return False
        point = {
            symbol: mpmath.iv.mpf([_number(low).a, _number(high).b])
            for symbol, (low, high) in zip(symbols, box, strict=True)
        }
        try:
            if interval_value(expression, point).a >= 0:
                continue
        except (ValueError, ZeroDivisionError):
            pass
        if not symbols:
            return False
        widest = max(range(len(box)), key=lambda i: box[i][1] - box[i][0])
        low, high = box[widest]
        middle = (low + high) / 2
        for half in ((low, middle), (middle, high)):
            boxes.append((*box[:widest], half, *box[widest + 1 :]))
    return True


def _number(value: sp.Rational) -> Any:
    return mpmath.iv.mpf(int(value.p)) / int(value.q)


# relations ---------------------------------------------------------------------------------------


def prove_le(lhs: sp.Expr, rhs: sp.Expr, domain: Domain | None = None) -> Verdict:
    """Decide ``lhs <= rhs``, with absolute values and square roots of nonnegative expressions.

    ``|z|`` on the left is replaced by both ``z`` and ``-z``, on the right by one of ``z``, ``-z``
    and 0 (lower bounds); sides that are single roots are squared.
    """
    if lhs.is_nonnegative and any(_is_root(side) for side in (lhs, rhs)):
        if not _nonnegative_side(rhs):
            return UNKNOWN
        left, right = sp.expand(lhs**2), sp.expand(rhs**2)
        if left.has(sp.Abs) or right.has(sp.Abs):
            return prove_le(left, right, domain)
        return prove_nonneg(sp.cancel(sp.together(right - left)), domain)
    if lhs.has(sp.Abs):
        size = next(iter(lhs.atoms(sp.Abs)))
        z = sp.Dummy(nonnegative=True)
        marked = lhs.xreplace({size: z})
        if not _coefficients(sp.expand(sp.diff(marked, z))):
            return UNKNOWN
        verdicts = [
            prove_le(lhs.xreplace({size: sign * size.args[0]}), rhs, domain) for sign in (1, -1)
        ]
        return next((v for v in verdicts if not v), verdicts[0])
    sizes = sorted(rhs.atoms(sp.Abs), key=str)
    if sizes:
        z = sp.Dummy(nonnegative=True)
        if not all(_coefficients(sp.expand(sp.diff(rhs.xreplace({a: z}), z))) for a in sizes):
            return UNKNOWN
        for options in ((1, -1), (1, -1, 0)):
            if len(options) ** len(sizes) > _MAX_BRANCHES:
                break
            for signs in product(options, repeat=len(sizes)):
                choice = {a: sign * a.args[0] for a, sign in zip(sizes, signs, strict=True)}
                if _coefficients(sp.expand(rhs.xreplace(choice) - lhs)):
                    return Verdict("proven", "symbolic")
        return UNKNOWN
    return prove_nonneg(rhs - lhs, domain)


def prove_eq(lhs: sp.Expr, rhs: sp.Expr) -> Verdict:
    """Decide ``lhs = rhs`` symbolically; refuted by a point where they differ."""
    difference = lhs - rhs
    if sp.expand(difference) == 0 or sp.simplify(difference) == 0:
        return Verdict("proven", "symbolic")
    for side in (difference, -difference):
        witness = _search(side, _ranges(side, {}))
        if witness:
            return Verdict("refuted", "interval", f"the sides differ: {witness}")
    return UNKNOWN


def _is_root(expression: sp.Expr) -> bool:
    return any(
        isinstance(factor, sp.Pow) and factor.exp == sp.Rational(1, 2) and not factor.base.is_number
        for factor in sp.Mul.make_args(expression)
    )


def _nonnegative_side(expression: sp.Expr) -> bool:
    return bool(
        expression.is_nonnegative
        or all(
            f.is_nonnegative or (isinstance(f, sp.Pow) and f.exp == sp.Rational(1, 2))
            for f in sp.Mul.make_args(expression)
        )
    )
