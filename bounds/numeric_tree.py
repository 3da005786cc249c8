"""Trees with random rational laws and interval arithmetic: a certified violation refutes a step."""

from __future__ import annotations

import random
from fractions import Fraction
from functools import cache
from itertools import product

import mpmath
import sympy as sp

from bounds.symbolic_tree import Node, Tree, Unsupported, Value

_PRECISION = 120
#: Sequences up to which the worst reward is found by enumeration.
_MOST_REWARDS = 4
mpmath.iv.prec = _PRECISION


class NumericTree(Tree):
    """Random rational laws and rewards; values are intervals (mpmath.iv)."""

    def __init__(self, horizon: int, tokens: int, seed: int) -> None:
        self.horizon, self.tokens = horizon, tokens
        draw = random.Random(1000 * seed + 10 * horizon + tokens)
        spread = (1, 3, 12)[seed % 3]
        self.p, self.rho, self.log_rho, self.reward = {}, {}, {}, {}
        for depth in range(horizon):
            for c in self.nodes(depth):
                weights = [draw.randint(10, 30) for _ in range(tokens)]
                tilted = [w + draw.choice((-1, 0, 1)) * draw.randint(0, spread) for w in weights]
                tilted = [max(w, 1) for w in tilted]
                roll = [Fraction(w, sum(weights)) for w in weights]
                theta = [Fraction(w, sum(tilted)) for w in tilted]
                self.p[c] = [_interval(value) for value in roll]
                ratios = [b / a for a, b in zip(roll, theta, strict=True)]
                self.rho[c] = [_interval(value) for value in ratios]
                self.log_rho[c] = [mpmath.iv.log(_interval(value)) for value in ratios]
        for y in self.nodes(horizon):
            value = draw.choice((0, 1, 1, Fraction(draw.randint(0, 4), 4)))
            self.reward[y] = _interval(Fraction(value))
        self._known: dict[tuple[str, int | None, Node | None], Value] = {}

    def atom(self, name: str, index: int | None, path: Node | None) -> Value:
        key = (name, index, path)
        if key not in self._known:
            self._known[key] = super().atom(name, index, path)
        return self._known[key]

    def root(self, node: Node) -> list[Value]:
        return [mpmath.iv.sqrt(value) for value in self.rho[node]]

    def number(self, value: sp.Rational) -> Value:
        return _rational(value)

    def absolute(self, value: Value) -> Value:
        return abs(value)

    def largest(self, values: list[Value]) -> Value:
        return mpmath.iv.mpf([max(v.a for v in values).a, max(v.b for v in values).b])

    def power(self, base: Value, exponent: sp.Expr) -> Value:
        if base.b < 0:
            raise Unsupported("root of a negative number")
        clipped = mpmath.iv.mpf([max(base.a, mpmath.iv.mpf(0)).a, base.b])
        if exponent < 0:
            if not clipped.a > 0:
                raise Unsupported("division by zero")
            return 1 / self.power(clipped, -exponent)
        return (
            mpmath.iv.sqrt(clipped) ** int(exponent.p)
            if exponent.q == 2
            else self._root(clipped, exponent)
        )

    @staticmethod
    def _root(base: Value, exponent: sp.Expr) -> Value:
        if not base.a > 0:
            return mpmath.iv.mpf(
                [0, (base.b ** _interval(Fraction(int(exponent.p), int(exponent.q)))).b]
            )
        return base ** _interval(Fraction(int(exponent.p), int(exponent.q)))

    def exponential(self, value: Value) -> Value:
        return mpmath.iv.exp(value)

    def supremum(self, body: sp.Expr) -> Value:
        kept, values = self.reward, []
        if len(kept) > _MOST_REWARDS:
            raise Unsupported("too many rewards to enumerate")
        for choice in product((0, 1), repeat=len(kept)):
            self.reward = {y: _interval(Fraction(r)) for y, r in zip(kept, choice, strict=True)}
            self._known = {}
            values.append(self.evaluate(body))
        self.reward, self._known = kept, {}
        return self.largest(values)

    def _event(self, law: list[tuple[Value, Value]]) -> tuple[Value, Value]:
        inside = [(a, b) for a, b in law if (a > b) is True]
        return self._total(a for a, _ in inside), self._total(b for _, b in inside)

    def _event_kl(self, law: list[tuple[Value, Value]]) -> Value:
        a, b = self._event(law)
        if not b > 0:
            return self.number(sp.S.Zero)
        return a * mpmath.iv.log(a / b) + (1 - a) * mpmath.iv.log((1 - a) / (1 - b))

    def _attained(self, position: int) -> Node:
        return max(self.nodes(position - 1), key=lambda c: self._tv(c).mid)


def _interval(value: Fraction) -> Value:
    return mpmath.iv.mpf(value.numerator) / value.denominator


@cache
def _rational(value: sp.Rational) -> Value:
    return _interval(Fraction(int(value.p), int(value.q)))


@cache
def numeric_trees() -> tuple[NumericTree, ...]:
    """The trees on which every statement is tried."""
    shapes = ((1, 2), (2, 2), (2, 3), (3, 2))
    return tuple(NumericTree(T_, V, seed) for seed in range(3) for T_, V in shapes)
