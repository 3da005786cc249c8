"""Small autoregressive trees with general symbols, on which identities are verified.

:class:`SymbolicTree` has general symbols for every conditional law and reward (two tokens), so an
identity that holds on it holds for all laws and rewards of that shape. A binary law pair is written
``p = (h, 1-h)``, ``rho = (1 + (1-h) a, 1 - h a)``: every pair with ``0 < h < 1`` has this form, and
all expectations become polynomials in ``h, a``. Log-ratios are formal symbols, with
``log(uv) = log u + log v``.

:class:`Tree` interprets abstract expressions on any kind of numbers;
:mod:`bounds.numeric_tree` has the one with random rational laws.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, cached_property
from itertools import product
from typing import Any

import sympy as sp
from sympy.polys.rings import PolyElement, ring

from bounds.atoms import SupR
from bounds.quantities import Expectation, T

Node = tuple[int, ...]
Value = Any


class Unsupported(Exception):
    """The expression has no interpretation on this kind of tree."""


class Tree:
    """Interprets abstract expressions on one pair of autoregressive laws of depth ``horizon``.

    Attributes:
        horizon: T.
        tokens: vocabulary size |V|.
        p: context -> roll's token probabilities.
        rho: context -> importance ratios of the tokens.
        log_rho: context -> log importance ratios of the tokens.
        reward: sequence -> reward.
    """

    horizon: int
    tokens: int
    p: dict[Node, list[Value]]
    rho: dict[Node, list[Value]]
    log_rho: dict[Node, list[Value]]
    reward: dict[Node, Value]

    # numbers -----------------------------------------------------------------------------------
    def number(self, value: sp.Rational) -> Value:
        raise NotImplementedError

    def absolute(self, value: Value) -> Value:
        raise NotImplementedError

    def largest(self, values: list[Value]) -> Value:
        raise Unsupported("maximum")

    def power(self, base: Value, exponent: sp.Expr) -> Value:
        raise Unsupported("power")

    def reduced(self, value: Value) -> Value:
        """Normal form: equal values have the same one."""
        return value

    # laws --------------------------------------------------------------------------------------
    def nodes(self, depth: int) -> Iterator[Node]:
        """Contexts after ``depth`` tokens."""
        return product(range(self.tokens), repeat=depth)

    def prob(self, node: Node, start: int = 0) -> Value:
        """Roll's probability of ``node`` given its first ``start`` tokens."""
        value = self.number(sp.S.One)
        for depth in range(start, len(node)):
            value = value * self.p[node[:depth]][node[depth]]
        return value

    def ratio(self, node: Node, start: int = 0) -> Value:
        """Product of the importance ratios along ``node`` from position ``start``."""
        value = self.number(sp.S.One)
        for depth in range(start, len(node)):
            value = value * self.rho[node[:depth]][node[depth]]
        return value

    def _log_ratio(self, node: Node, start: int = 0) -> Value:
        value = self.number(sp.S.Zero)
        for depth in range(start, len(node)):
            value = value + self.log_rho[node[:depth]][node[depth]]
        return value

    def _futures(self, node: Node) -> list[Node]:
        return [
            node + rest for rest in product(range(self.tokens), repeat=self.horizon - len(node))
        ]

    def _total(self, values: Iterator[Value]) -> Value:
        value = self.number(sp.S.Zero)
        for term in values:
            value = value + term
        return value

    @cached_property
    def _returns(self) -> dict[Node, Value]:
        """E_roll[R | context] for every context."""
        values = dict(self.reward)
        for depth in reversed(range(self.horizon)):
            for node in self.nodes(depth):
                values[node] = self._total(
                    self.p[node][y] * values[(*node, y)] for y in range(self.tokens)
                )
        return values

    def _g(self, node: Node) -> Value:
        """E_theta[A^roll(c, y)] at context c."""
        value = self._returns
        return self._total(
            self.p[node][y] * self.rho[node][y] * (value[(*node, y)] - value[node])
            for y in range(self.tokens)
        )

    def _kl(self, node: Node) -> Value:
        return -self._total(self.p[node][y] * self.log_rho[node][y] for y in range(self.tokens))

    def _tv(self, node: Node) -> Value:
        return self.number(sp.Rational(1, 2)) * self._total(
            self.p[node][y] * self.absolute(self.rho[node][y] - 1) for y in range(self.tokens)
        )

    def _chi(self, node: Node) -> Value:
        return self._total(
            self.p[node][y] * (self.rho[node][y] - 1) ** 2 for y in range(self.tokens)
        )

    def root(self, node: Node) -> list[Value]:
        """Square roots of the importance ratios at a context."""
        raise Unsupported("root of a ratio")

    def _root_moment(self, node: Node, power: int) -> Value:
        return self._total(
            self.p[node][y] * (self.root(node)[y] - 1) ** power for y in range(self.tokens)
        )

    def _hel(self, node: Node) -> Value:
        return self._root_moment(node, 2)

    def _root_ratio(self, node: Node) -> Value:
        value = self.number(sp.S.One)
        for depth in range(len(node)):
            value = value * self.root(node[:depth])[node[depth]]
        return value

    def _mean(self, quantity: Any, position: int) -> Value:
        return self._total(self.prob(c) * quantity(c) for c in self.nodes(position - 1))

    def _max(self, quantity: Any, position: int) -> Value:
        return self.largest([quantity(c) for c in self.nodes(position - 1)])

    # pairs of laws: list of (roll probability, theta probability) ---------------------------------
    def _law(self, leaves: list[Node], start: int = 0) -> list[tuple[Value, Value]]:
        pairs = []
        for leaf in leaves:
            mass = self.prob(leaf, start)
            pairs.append((mass, mass * self.ratio(leaf, start)))
        return pairs

    def _tv_of(self, law: list[tuple[Value, Value]]) -> Value:
        half = self.number(sp.Rational(1, 2))
        return half * self._total(self.absolute(b - a) for a, b in law)

    def _event(self, law: list[tuple[Value, Value]]) -> tuple[Value, Value]:
        raise Unsupported("event")

    def _gap_of(self, law: list[tuple[Value, Value]]) -> Value:
        mass, other = self._event(law)
        return mass - other

    def _event_kl(self, law: list[tuple[Value, Value]]) -> Value:
        raise Unsupported("logarithm")

    def _attained(self, position: int) -> Node:
        raise Unsupported("argmax")

    # interpretation ----------------------------------------------------------------------------
    def atom(self, name: str, index: int | None, path: Node | None) -> Value:
        """Value of an atom of :mod:`bounds.atoms` or :mod:`bounds.quantities`."""
        everything = self._futures(())
        if index is None:
            if name == "R":
                return self.reward[_need(path)]
            return self._scalar(name, everything)
        if not 0 <= index <= self.horizon:
            raise Unsupported(f"{name}[{index}]")
        if name in _AT_CONTEXT or name in _AT_TOKEN:
            return self._along(name, index, _need(path))
        if name in ("Vfut", "Kfut"):
            return self.largest(
                [
                    self._along({"Vfut": "TVf", "Kfut": "KLf"}[name], index, c)
                    for c in self._all(index)
                ]
            )
        if index < 1:
            raise Unsupported(f"{name}[{index}]")
        return self._positional(name, index)

    def _all(self, depth: int) -> list[Node]:
        return [c + (0,) * (self.horizon - depth) for c in self.nodes(depth)]

    def _scalar(self, name: str, leaves: list[Node]) -> Value:
        positions = range(1, self.horizon + 1)
        law = self._law(leaves)
        if name == "Error":
            gain = self._total(
                self.reward[y] * (b - a) for y, (a, b) in zip(leaves, law, strict=True)
            )
            return gain - self._total(
                self.prob(y) * (self.rho[y[: t - 1]][y[t - 1]] - 1) * self.reward[y]
                for y in leaves
                for t in positions
            )
        if name == "K_seq":
            return -self._total(self.prob(y) * self._log_ratio(y) for y in leaves)
        if name in ("Xbar", "Hbar", "Fbar"):
            means = {"Xbar": self._chi, "Hbar": self._hel}
            quantity = means.get(name, lambda c: self._root_moment(c, 4))
            return self._total(self._mean(quantity, t) for t in positions) * self.number(
                sp.Rational(1, self.horizon)
            )
        if name == "H_seq":
            return self._total(self.prob(y) * (self._root_ratio(y) - 1) ** 2 for y in leaves)
        if name == "H_cross":
            return self._total(
                self._mean(lambda c: self._hel(c) * (self._root_ratio(c) - 1) ** 2, t)
                for t in positions
            )
        if name in ("delta", "epsilon", "x", "eta"):
            quantity = {"delta": self._kl, "epsilon": self._tv, "x": self._chi, "eta": self._hel}[
                name
            ]
            return self.largest([self._max(quantity, t) for t in positions])
        if name == "TV_seq":
            return self._tv_of(law)
        if name == "gap_seq":
            return self._gap_of(law)
        if name == "klb_seq":
            return self._event_kl(law)
        raise Unsupported(name)

    def _positional(self, name: str, t: int) -> Value:
        contexts = list(self.nodes(t - 1))
        means = {"KLbar_t": self._kl, "X_t": self._chi, "D_t": self._tv, "H_t": self._hel}
        maxima = {
            "delta_t": self._kl,
            "x_t": self._chi,
            "epsilon_t": self._tv,
            "eta_t": self._hel,
        }
        if name == "F_t":
            return self._mean(lambda c: self._root_moment(c, 4), t)
        if name in means:
            return self._mean(means[name], t)
        if name in maxima:
            return self._max(maxima[name], t)
        if name == "G":
            return self._total(self.prob(c) * (self.ratio(c) - 1) * self._g(c) for c in contexts)
        if name == "gmax":
            return self.largest([self.absolute(self._g(c)) for c in contexts])
        if name == "KLd":
            return -self._total(self.prob(c) * self._log_ratio(c) for c in contexts)
        if name in ("TVd", "gap_d", "klb_d"):
            of = {"TVd": self._tv_of, "gap_d": self._gap_of, "klb_d": self._event_kl}
            return of[name](self._law(contexts))
        if name in ("gap_tok", "klb_tok", "kl_tok"):
            context = self._attained(t)
            if name == "kl_tok":
                return self._kl(context)
            law = self._law([(*context, y) for y in range(self.tokens)], t - 1)
            return self._gap_of(law) if name == "gap_tok" else self._event_kl(law)
        raise Unsupported(name)

    def _along(self, name: str, t: int, path: Node) -> Value:
        if name in _AT_TOKEN:
            if t < 1:
                raise Unsupported(f"{name}[{t}]")
            context = path[: t - 1]
            if name in ("chi", "hel"):
                return self._chi(context) if name == "chi" else self._hel(context)
            if name == "root":
                return self.root(context)[path[t - 1]]
            return (self.rho if name == "rho" else self.log_rho)[context][path[t - 1]]
        futures = self._futures(path[:t])
        if name == "B":
            return self._total(
                self.prob(y, t) * (self.ratio(y, t) - 1) * self.reward[y] for y in futures
            )
        if name == "KLf":
            return -self._total(self.prob(y, t) * self._log_ratio(y, t) for y in futures)
        law = self._law(futures, t)
        of = {"TVf": self._tv_of, "gap_f": self._gap_of, "klb_f": self._event_kl}
        return of[name](law)

    def evaluate(
        self, node: sp.Basic, env: dict[sp.Basic, int] | None = None, path: Node | None = None
    ) -> Value:
        """Value of an abstract expression.

        Args:
            node: sympy expression in abstract atoms.
            env: values of free position indices.
            path: sampled sequence, inside an expectation.

        Raises:
            Unsupported: no interpretation on this tree.
        """
        env = env or {}
        if isinstance(node, sp.Rational):
            return self.number(node)
        if node == T or node in env:
            return self.number(sp.Integer(self.horizon if node == T else env[node]))
        if isinstance(node, sp.Symbol):
            return self.atom(node.name, None, path)
        if isinstance(node, sp.Indexed):
            return self.atom(node.base.label.name, self._integer(node.indices[0], env), path)
        if isinstance(node, (sp.Sum, sp.Product)):
            index, low, high = node.limits[-1]
            body = node.func(node.function, *node.limits[:-1]) if node.limits[1:] else node.function
            span = range(self._integer(low, env), self._integer(high, env) + 1)
            terms = [self.evaluate(body, {**env, index: i}, path) for i in span]
            if isinstance(node, sp.Sum):
                return self._total(iter(terms))
            value = self.number(sp.S.One)
            for term in terms:
                value = value * term
            return value
        if isinstance(node, Expectation):
            if path is not None:
                raise Unsupported("nested expectation")
            return self._total(
                self.prob(y) * self.evaluate(node.args[0], env, y) for y in self._futures(())
            )
        if isinstance(node, SupR):
            return self.supremum(node.args[0])
        args = node.args
        if isinstance(node, sp.Pow):
            return self._pow(self.evaluate(args[0], env, path), args[1], env)
        values = [self.evaluate(argument, env, path) for argument in args]
        if isinstance(node, sp.Add):
            return self._total(iter(values))
        if isinstance(node, sp.Mul):
            value = values[0]
            for factor in values[1:]:
                value = value * factor
            return value
        if isinstance(node, sp.Abs):
            return self.absolute(values[0])
        if isinstance(node, sp.Min):
            return -self.largest([-value for value in values])
        if isinstance(node, sp.exp):
            return self.exponential(values[0])
        raise Unsupported(type(node).__name__)

    def supremum(self, body: sp.Expr) -> Value:
        raise Unsupported("supremum over rewards")

    def exponential(self, value: Value) -> Value:
        raise Unsupported("exp")

    def _pow(self, base: Value, exponent: sp.Expr, env: dict[sp.Basic, int]) -> Value:
        if exponent.free_symbols:
            exponent = exponent.subs({**env, T: self.horizon})
        if exponent.is_Integer and exponent >= 0:
            return base ** int(exponent) if exponent > 0 else self.number(sp.S.One)
        if not exponent.is_Rational:
            raise Unsupported("exponent")
        return self.power(base, exponent)

    def _integer(self, expression: sp.Expr, env: dict[sp.Basic, int]) -> int:
        if expression in env:
            return env[expression]
        value = expression.xreplace(
            {k: sp.Integer(v) for k, v in env.items()} | {T: sp.Integer(self.horizon)}
        )
        if not value.is_Integer:
            raise Unsupported(f"index {expression}")
        return int(value)


_AT_TOKEN = ("rho", "ell_t", "chi", "root", "hel")
_AT_CONTEXT = ("B", "TVf", "KLf", "gap_f", "klb_f")


def _need(path: Node | None) -> Node:
    if path is None:
        raise Unsupported("a path quantity outside an expectation")
    return path


class SymbolicTree(Tree):
    """Two tokens, general symbols everywhere; values are polynomials over the rationals."""

    tokens = 2

    def __init__(self, horizon: int) -> None:
        self.horizon = horizon
        contexts = [c for depth in range(horizon) for c in self.nodes(depth)]
        leaves = list(self.nodes(horizon))
        tag = {c: "".join(map(str, c)) for c in [*contexts, *leaves]}
        names = [f"{letter}_{tag[c]}" for c in contexts for letter in ("h", "a", "b", "l0", "l1")]
        names += [f"R_{tag[y]}" for y in leaves]
        self.ring, *generators = ring(names, sp.QQ)
        self.reward = dict(zip(leaves, generators[5 * len(contexts) :], strict=True))
        self.p, self.rho, self.log_rho = {}, {}, {}
        self._absolutes: dict[PolyElement, PolyElement] = {self.ring.zero: self.ring.zero}
        for i, c in enumerate(contexts):
            h, a, b, l0, l1 = generators[5 * i : 5 * i + 5]
            self.p[c] = [h, 1 - h]
            self.rho[c] = [1 + (1 - h) * a, 1 - h * a]
            self.log_rho[c] = [l0, l1]
            for value, size in (((1 - h) * a, (1 - h) * b), (h * a, h * b)):
                self._absolutes[value] = self._absolutes[-value] = size

    def number(self, value: sp.Rational) -> Value:
        return self.ring(sp.QQ(int(value.p), int(value.q)))

    def largest(self, values: list[Value]) -> Value:
        if any(value != values[0] for value in values):
            raise Unsupported("maximum of different symbols")
        return values[0]

    def absolute(self, value: Value) -> Value:
        if value not in self._absolutes:
            raise Unsupported("absolute value of unknown sign")
        return self._absolutes[value]


class RootTree(Tree):
    """Two tokens, general laws in terms of the roots ``r0, r1`` of their two ratios.

    From ``p0 + p1 = 1`` and ``p0 r0^2 + p1 r1^2 = 1``, ``p = ((1 - r1^2) i, (r0^2 - 1) i)`` with
    ``i = 1/(r0^2 - r1^2)``: every pair of binary laws that differ has this form, and equal ones are
    limits. Values are polynomials in ``r0, r1, i`` of all contexts, modulo
    ``i (r0^2 - r1^2) = 1``.
    """

    tokens = 2

    def __init__(self, horizon: int) -> None:
        self.horizon = horizon
        contexts = [c for depth in range(horizon) for c in self.nodes(depth)]
        tag = {c: "".join(map(str, c)) for c in contexts}
        names = [f"{letter}_{tag[c]}" for c in contexts for letter in ("r0", "r1", "i")]
        self.ring, *generators = ring(names, sp.QQ)
        self.p, self.rho, self._roots, self.reward, self.log_rho = {}, {}, {}, {}, {}
        self._relations = []
        for k, c in enumerate(contexts):
            r0, r1, i = generators[3 * k : 3 * k + 3]
            self._relations.append(i * (r0**2 - r1**2) - 1)
            self.p[c] = [(1 - r1**2) * i, (r0**2 - 1) * i]
            self._roots[c] = [r0, r1]
            self.rho[c] = [r0**2, r1**2]

    def root(self, node: Node) -> list[Value]:
        return self._roots[node]

    def number(self, value: sp.Rational) -> Value:
        return self.ring(sp.QQ(int(value.p), int(value.q)))

    def reduced(self, value: Value) -> Value:
        # the relations' leading terms share no symbol, so they are a Groebner basis
        return value.rem(self._relations)


@cache
def root_tree(horizon: int) -> RootTree:
    """The tree with rational roots (shared: it is never changed)."""
    return RootTree(horizon)


@cache
def symbolic_tree(horizon: int) -> SymbolicTree:
    """The symbolic tree of depth ``horizon`` (shared: it is never changed)."""
    return SymbolicTree(horizon)
