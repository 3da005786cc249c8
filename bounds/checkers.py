"""Checkers: each interprets the abstract symbols of a statement in a model and proves it there.

A checker never trusts the statement's wording: it substitutes the model's expressions for the
abstract symbols and proves the resulting relation, so a changed constant, sign or exponent changes
what has to be proven. A symbol that the model does not interpret makes the check fail.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

import sympy as sp

from bounds.algebra import canonical, nondecreasing, rewrite, same
from bounds.atoms import B, E, R, chi, rho
from bounds.proof import Context, Step, StepResult
from bounds.prover import (
    Verdict,
    prove_by_convexity,
    prove_by_derivative,
    prove_eq,
    prove_le,
    prove_nonneg,
)
from bounds.quantities import T, ell_t, j, t
from bounds.symbolic_tree import symbolic_tree

_HALF = sp.Rational(1, 2)


def _nonneg(name: str) -> sp.Symbol:
    return sp.Symbol(f"{name}_m", nonnegative=True)


def _real(name: str) -> sp.Symbol:
    return sp.Symbol(f"{name}_m", real=True)


def _is_model(symbol: sp.Basic) -> bool:
    return isinstance(symbol, sp.Symbol) and symbol.name.endswith("_m")


def _checked(method: str, scope: str) -> StepResult:
    return StepResult("checked", method, scope)


def _from(verdict: Verdict, scope: str) -> StepResult:
    if verdict:
        return _checked(verdict.method, scope)
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


def _interpret(expression: sp.Basic, values: Mapping[sp.Basic, sp.Expr]) -> sp.Expr:
    """The expression in model symbols only.

    Raises:
        ValueError: something in it has no interpretation.
    """
    result = expression.xreplace(dict(values))
    left = [a for a in result.free_symbols if not _is_model(a)]
    if left or result.has(E):
        raise ValueError(f"{left or result} has no interpretation in this lemma's model")
    return result


def _decide(statement: sp.Basic, values: Mapping[sp.Basic, sp.Expr]) -> Verdict:
    lhs, rhs = (_interpret(side, values) for side in statement.args)
    return prove_eq(lhs, rhs) if isinstance(statement, sp.Eq) else prove_le(lhs, rhs)


def _all(verdicts: Iterator[Verdict], scope: str) -> StepResult:
    methods: list[str] = []
    for verdict in verdicts:
        if not verdict:
            return _from(verdict, scope)
        if verdict.method not in methods:
            methods.append(verdict.method)
    if not methods:
        raise ValueError("the model has no case")
    return _checked(", ".join(methods), scope)


def _signs(n: int) -> Iterator[tuple[int, ...]]:
    """Sign patterns with both signs, up to order: k positive, then n - k negative."""
    for k in range(1, n):
        yield (1,) * k + (-1,) * (n - k)


def _zero_sum(n: int) -> Iterator[list[sp.Expr]]:
    """All zero-sum vectors of length n, by sign pattern, as transports of nonnegative mass."""
    for signs in _signs(n):
        u = [sp.S.Zero] * n
        for i, k in product(range(n), repeat=2):
            if signs[i] > 0 > signs[k]:
                moved = _nonneg(f"w{i}{k}")
                u[i] += moved
                u[k] -= moved
        yield u


class _NoNeeds:
    def needs(self) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True)
class TreeIdentity(_NoNeeds):
    """An identity on the symbolic tree: general laws and rewards, T up to ``deepest``."""

    deepest: int = 3

    def run(self, statement: sp.Basic, context: Context) -> StepResult:
        if not isinstance(statement, sp.Eq):
            raise ValueError("only identities are checked on the symbolic tree")
        for depth in range(1, self.deepest + 1):
            tree = symbolic_tree(depth)
            for index in range(1, depth + 1) if statement.has(t) else (1,):
                left, right = (tree.evaluate(side, {t: index}) for side in statement.args)
                if left - right != 0:
                    return StepResult(
                        "refuted", "symbolic", f"T = {depth}, |V| = 2",
                        f"the sides differ by a nonzero polynomial of {len(left - right)} terms",
                    )
        return _checked("symbolic", f"T = 1..{self.deepest}, |V| = 2, general laws and rewards")


@dataclass(frozen=True)
class PathIdentity(_NoNeeds):
    """A polynomial identity in the ratios rho_1..rho_T, general symbols."""

    deepest: int = 6

    def run(self, statement: sp.Basic, context: Context) -> StepResult:
        if not isinstance(statement, sp.Eq):
            raise ValueError("only identities are checked here")

        def verdicts() -> Iterator[Verdict]:
            for n in range(1, self.deepest + 1):
                values = {rho[i]: _real(f"rho{i}") for i in range(1, n + 1)}
                sides = [unroll(side, n) for side in statement.args]
                yield prove_eq(*[_interpret(side, values) for side in sides])

        return _all(verdicts(), f"T = 1..{self.deepest}, general ratios")


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
            return _all(self._attained(statement), scope)
        lhs, rhs = statement.args
        z = sp.Dummy("z", nonnegative=True)
        size = self.linear if self.absolute else sp.Abs(self.linear)
        marked = lhs.xreplace({size: z})
        if not isinstance(statement, sp.Le) or marked == lhs or not nondecreasing(marked, z):
            raise ValueError("the left side is not nondecreasing in the linear form's size")
        if rhs.has(self.linear):
            raise ValueError("the linear form is on the right side")
        return _all(
            (_decide(statement, values) for n in self.outcomes for values in self._cases(n)), scope
        )

    def _cases(self, n: int) -> Iterator[dict[sp.Basic, sp.Expr]]:
        for u in _zero_sum(n):
            total = sum(sp.expand(x * (1 if _positive(x) else -1)) for x in u)
            for f in product((self.low, self.high), repeat=n):
                form = sum((a * b for a, b in zip(f, u, strict=True)), sp.S.Zero)
                values = {
                    atom: factor * total + (_nonneg("slack") if self.slack else 0)
                    for atom, factor in self.mass
                }
                values[self.linear] = sp.Abs(sp.expand(form)) if self.absolute else form
                if self.scale is not None:
                    values[self.scale] = _nonneg("F")
                yield values

    def _attained(self, statement: sp.Basic) -> Iterator[Verdict]:
        """``sup_f |sum f u|`` equals the right side: every vertex is below, one attains it."""
        lhs, rhs = statement.args
        if not isinstance(statement, sp.Eq) or lhs != self.supremum:
            raise ValueError("the left side is not the supremum")
        for n in self.outcomes:
            for u in _zero_sum(n):
                total = sum(x * (1 if _positive(x) else -1) for x in u)
                right = _interpret(rhs, {atom: k * total for atom, k in self.mass})
                best = sum(x for x in u if _positive(x))
                yield prove_eq(best, right)
                for f in product((self.low, self.high), repeat=n):
                    form = sum((a * b for a, b in zip(f, u, strict=True)), sp.S.Zero)
                    yield prove_le(sp.Abs(sp.expand(form)), right)


def _positive(expression: sp.Expr) -> bool:
    """Sign of a transported mass: all its coefficients have one sign."""
    return bool(sp.Poly(expression).coeffs()[0] > 0)


@dataclass(frozen=True)
class EventSplit(_NoNeeds):
    """``1/2 sum |u| = sum of the positive u`` for zero-sum u."""

    variation: sp.Expr
    gap: sp.Expr

    def run(self, statement: sp.Basic, context: Context) -> StepResult:
        def verdicts() -> Iterator[Verdict]:
            for n in (2, 3, 4):
                for u in _zero_sum(n):
                    values = {
                        self.variation: sum(x if _positive(x) else -x for x in u) / 2,
                        self.gap: sum(x for x in u if _positive(x)),
                    }
                    yield _decide(statement, values)

        return _all(verdicts(), "2..4 outcomes, every sign pattern")


@dataclass(frozen=True)
class BernoulliPinsker(_NoNeeds):
    """Pinsker for two outcomes, by a derivative certificate in q."""

    gap: sp.Expr
    divergence: sp.Expr

    def run(self, statement: sp.Basic, context: Context) -> StepResult:
        p = sp.Symbol("p_m", positive=True)
        q = sp.Symbol("q_m", positive=True)
        distance, kl = _nonneg("d"), _nonneg("kl")
        lhs, rhs = (
            _interpret(side, {self.gap: distance, self.divergence: kl}) for side in statement.args
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
        unit = (sp.S.Zero, sp.S.One)
        verdict = prove_by_derivative(squared, q, p, {p: unit, q: unit})
        return _from(verdict, "all p >= q in (0, 1): squares compared, derivative in q")


@dataclass(frozen=True)
class LogSum(_NoNeeds):
    """Merging two outcomes cannot raise KL (log-sum inequality), by convexity in one mass."""

    coarse: sp.Expr
    fine: sp.Expr

    def run(self, statement: sp.Basic, context: Context) -> StepResult:
        a, b, c, d = (sp.Symbol(f"{name}_m", positive=True) for name in "abcd")
        rest = _nonneg("rest")
        values = {
            self.fine: a * sp.log(a / b) + c * sp.log(c / d) + rest,
            self.coarse: (a + c) * sp.log((a + c) / (b + d)) + rest,
        }
        lhs, rhs = (_interpret(side, values) for side in statement.args)
        if not isinstance(statement, sp.Le):
            raise ValueError("data processing is an inequality")
        return _from(
            prove_by_convexity(rhs - lhs, c, a * d / b),
            "all positive masses; outcomes merged two at a time",
        )


@dataclass(frozen=True)
class Largest(_NoNeeds):
    """``a <= b`` where b is the largest of values that include a: ``b = a + slack``."""

    member: sp.Expr
    largest: sp.Expr

    def run(self, statement: sp.Basic, context: Context) -> StepResult:
        value, slack = _nonneg("a"), _nonneg("slack")
        values = {self.member: value, self.largest: value + slack}
        return _from(_decide(statement, values), "definition of the maximum: largest = a + slack")


@dataclass(frozen=True)
class MeanBelowMax(_NoNeeds):
    """A mean over contexts is at most the largest value."""

    mean: sp.Expr
    largest: sp.Expr

    def run(self, statement: sp.Basic, context: Context) -> StepResult:
        def verdicts() -> Iterator[Verdict]:
            for n in (2, 3, 4):
                weights = [sp.Symbol(f"w{i}_m", positive=True) for i in range(n)]
                values = [_nonneg(f"v{i}") for i in range(n)]
                slacks = [_nonneg(f"k{i}") for i in range(n)]
                mass = sum(weights)
                mean = sum(w * v for w, v in zip(weights, values, strict=True)) / mass
                top = sum(
                    w * (v + k) for w, v, k in zip(weights, values, slacks, strict=True)
                ) / mass
                yield _decide(statement, {self.mean: mean, self.largest: top})

        return _all(verdicts(), "2..4 contexts, any weights; largest = value + slack in each")


@dataclass(frozen=True)
class UnitTV(_NoNeeds):
    """Total variation of two probability laws is at most 1."""

    variation: sp.Expr

    def run(self, statement: sp.Basic, context: Context) -> StepResult:
        def verdicts() -> Iterator[Verdict]:
            for n in (2, 3):
                a = [_nonneg(f"a{i}") for i in range(n)]
                b = [_nonneg(f"b{i}") for i in range(n)]
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
                    yield _decide(statement, {self.variation: total / 2})

        return _all(verdicts(), "2..3 outcomes, normalised laws, every sign pattern")


@dataclass(frozen=True)
class Marginal(_NoNeeds):
    """Total variation of a marginal is at most that of the joint law."""

    marginal: sp.Expr
    joint: sp.Expr

    def run(self, statement: sp.Basic, context: Context) -> StepResult:
        def verdicts() -> Iterator[Verdict]:
            rows, columns = 2, 3
            for signs in product((1, -1), repeat=rows * columns):
                u = [sign * _nonneg(f"u{i}") for i, sign in enumerate(signs)]
                parts = [u[i * columns : (i + 1) * columns] for i in range(rows)]
                values = {
                    self.marginal: sum(sp.Abs(sum(part)) for part in parts) / 2,
                    self.joint: sum(sign * x for sign, x in zip(signs, u, strict=True)) / 2,
                }
                yield _decide(statement, values)

        return _all(verdicts(), "2 x 3 joint laws, every sign pattern")


@dataclass(frozen=True)
class CouplingStep(_NoNeeds):
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
        # flipping a context's signs, or renaming its tokens, leaves one pattern: the context's shift
        # is positive, the first token's change is positive and the second's negative
        cells = list(product(range(2), range(2)))
        masses = [_nonneg(f"P{c}") for c in range(2)]
        shifts = [_nonneg(f"d{c}") for c in range(2)]
        slacks = [_nonneg(f"k{c}") for c in range(2)]
        kernel = {cell: _nonneg(f"q{cell[0]}{cell[1]}") for cell in cells}
        change = {cell: _nonneg(f"f{cell[0]}{cell[1]}") for cell in cells}

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
        return _from(
            _decide(statement, values), "2 contexts, 2 tokens, every sign pattern; laws sum to 1"
        )


@dataclass(frozen=True)
class ChainStep(_NoNeeds):
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
                p = [_nonneg(f"p{y}") for y in range(n)]
                later = [_nonneg(f"K{y}") for y in range(n)]
                slack = [_nonneg(f"k{y}") for y in range(n)]
                now, extra = _nonneg("now"), _nonneg("extra")
                mean = sum(a * b for a, b in zip(p, later, strict=True)) / sum(p)
                top = sum(
                    a * (b + c) for a, b, c in zip(p, later, slack, strict=True)
                ) / sum(p)
                yield _decide(
                    statement,
                    {self.whole: now + mean, self.first: now + extra, self.second: top},
                )

        return _all(verdicts(), "2..3 tokens; chain rule with formal logarithms, |V| = 2")


@dataclass(frozen=True)
class Induction:
    """``F[t] <= f(t)`` from ``F[start] = 0`` and ``F[next] <= F[t] + increment``.

    Attributes:
        base, step: keys of the two premises.
        sequence: F as an indexed base.
        forward: whether the step goes from t to t + 1 (else from t to t - 1).
    """

    base: str
    step: str
    sequence: sp.IndexedBase
    forward: bool

    def needs(self) -> tuple[str, ...]:
        return (self.base, self.step)

    def run(self, statement: sp.Basic, context: Context) -> StepResult:
        start, move = (sp.S.One, 1) if self.forward else (T, -1)
        base = context.steps[self.base].statement
        step = context.steps[self.step].statement
        here, there = self.sequence[t], self.sequence[t + move]
        if base != sp.Eq(self.sequence[start], 0, evaluate=False):
            raise ValueError(f"the premise is not {self.sequence[start]} = 0")
        increment = step.rhs - here
        if not isinstance(step, sp.Le) or step.lhs != there or increment.has(self.sequence):
            raise ValueError("the premise is not a recursion")
        if not isinstance(statement, sp.Le) or statement.lhs != here:
            raise ValueError(f"the left side is not {here}")
        first = _without_empty(statement.rhs.subs(t, start))
        if not first.is_nonnegative:
            raise ValueError("the base case fails")
        now, then = _advance(statement.rhs, move)
        rest = sp.expand(then - now - increment)
        if rest != 0 and not rest.is_nonnegative:
            raise ValueError(f"the induction step fails by {rest}")
        return _checked("induction", "all t, symbolic")


def _without_empty(expression: sp.Expr) -> sp.Expr:
    """The expression with empty sums and products evaluated; there must be no other."""
    values = {}
    for node in expression.atoms(sp.Sum, sp.Product):
        _, low, high = node.limits[0]
        if node.limits[1:] or sp.expand(high - low + 1) != 0:
            raise ValueError(f"{node} is not empty")
        values[node] = sp.S.Zero if isinstance(node, sp.Sum) else sp.S.One
    return expression.xreplace(values)


def _advance(expression: sp.Expr, move: int) -> tuple[sp.Expr, sp.Expr]:
    """The expression at t and at ``t + move``, sums and products over earlier (or later) terms
    sharing a symbol."""
    marks: dict[sp.Basic, sp.Expr] = {}
    then: dict[sp.Basic, sp.Expr] = {}
    for node in expression.atoms(sp.Sum, sp.Product):
        index, low, high = node.limits[0]
        z = sp.Dummy("z", nonnegative=True)
        if move == 1 and not low.has(t):
            shift, edge = sp.expand(high.subs(t, t + 1) - high), high + 1
        elif move == -1 and not high.has(t):
            shift, edge = sp.expand(low - low.subs(t, t - 1)), low - 1
        else:
            raise ValueError("limits that the induction does not follow")
        if shift != 1:
            raise ValueError("limits must move by one")
        term = node.function.subs(index, edge)
        marks[node] = z
        then[z] = z + term if isinstance(node, sp.Sum) else z * term
    if not marks:
        raise ValueError("no sum to advance")
    now = expression.xreplace(marks)
    return now, now.subs(t, t + move).xreplace(then)


@dataclass(frozen=True)
class ProductInduction:
    """``E[prod_{j<t} rho_j^2] <= f(t)`` from its recursion and ``chi_t <= x_t``."""

    recursion: str
    largest: str

    def needs(self) -> tuple[str, ...]:
        return (self.recursion, self.largest)

    def run(self, statement: sp.Basic, context: Context) -> StepResult:
        square = sp.Product(rho[j], (j, 1, t - 1)) ** 2
        after = sp.Product(rho[j], (j, 1, t)) ** 2
        recursion = context.steps[self.recursion].statement
        if recursion != sp.Eq(E(after), E(square * (1 + chi[t])), evaluate=False):
            raise ValueError("the recursion of E[M_t^2] is not what the premise states")
        largest = context.steps[self.largest].statement
        if not isinstance(largest, sp.Le) or largest.lhs != chi[t]:
            raise ValueError("the premise is not a bound on chi_t")
        if not isinstance(statement, sp.Le) or statement.lhs != E(square):
            raise ValueError("the left side is not E[M_(t-1)^2]")
        if not prove_nonneg(_without_empty(statement.rhs.subs(t, 1)) - 1):
            raise ValueError("the base case E[M_0^2] = 1 fails")
        now, then = _advance(statement.rhs, 1)
        z = next(iter(now.free_symbols - {t}))
        growth = sp.expand(then - now * (1 + largest.rhs))
        if growth != 0 and not growth.is_nonnegative:
            raise ValueError(f"the induction step fails by {growth} ({z} is the product so far)")
        return _checked("induction", "all t, symbolic")


@dataclass(frozen=True)
class SumRule(_NoNeeds):
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
            return _checked("induction", "all T, symbolic")
        verdict = prove_nonneg(first)
        if verdict:
            verdict = _radical_step(step)
        return _from(Verdict(verdict.outcome, f"induction, {verdict.method}", verdict.detail), "all T")


def _root_of(expression: sp.Expr) -> bool:
    """Whether every factor is a square root, so that the product is nonnegative."""
    return all(
        isinstance(factor, sp.Pow) and factor.exp == _HALF
        for factor in sp.Mul.make_args(expression)
    )


def _radical_step(step: sp.Expr) -> Verdict:
    """``step >= 0`` with a = sqrt(T), b = sqrt(T + 1): made homogeneous by ``b^2 - a^2 = 1``."""
    a, gap = _nonneg("a"), _nonneg("gap")
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
class Triangle(_NoNeeds):
    """Triangle inequality for a sum of real numbers ``a[1..T]``."""

    terms: sp.IndexedBase
    deepest: int = 5

    def run(self, statement: sp.Basic, context: Context) -> StepResult:
        def verdicts() -> Iterator[Verdict]:
            for n in range(1, self.deepest + 1):
                for signs in product((1, -1), repeat=n):
                    values = {
                        self.terms[i + 1]: sign * _nonneg(f"g{i}") for i, sign in enumerate(signs)
                    }
                    lhs, rhs = (unroll(side, n) for side in statement.args)
                    yield _decide(statement.func(lhs, rhs, evaluate=False), values)

        return _all(verdicts(), f"T = 1..{self.deepest}, every sign pattern")


def _outcomes(expression: sp.Basic, horizon: int, n: int, values: object) -> sp.Basic:
    """``E[body]`` as ``sum_i w_i body_i / sum_i w_i``; ``values(atom, i)`` gives atoms of outcome i."""
    expression = unroll(expression, horizon) if horizon else expression
    weights = [sp.Symbol(f"w{i}_m", positive=True) for i in range(n)]

    def expectation(node: sp.Basic) -> sp.Expr:
        total = sp.S.Zero
        for i, weight in enumerate(weights):
            total += weight * node.args[0].xreplace(values(i))  # type: ignore[operator]
        return total / sum(weights)

    return expression.replace(lambda node: isinstance(node, E), expectation)


@dataclass(frozen=True)
class PathTriangle(_NoNeeds):
    """Triangle inequality inside an expectation; atoms on the path are free real numbers."""

    horizons: tuple[int, ...] = (1, 2)
    outcomes: int = 2

    def run(self, statement: sp.Basic, context: Context) -> StepResult:
        def verdicts() -> Iterator[Verdict]:
            for horizon in self.horizons:
                def values(i: int, horizon: int = horizon) -> dict[sp.Basic, sp.Expr]:
                    found: dict[sp.Basic, sp.Expr] = {R: _nonneg(f"R{i}")}
                    for k in range(1, horizon + 1):
                        found[rho[k]] = 1 + _real(f"y{k}{i}")
                        found[B[k]] = _real(f"B{k}{i}")
                    return found

                lhs, rhs = (
                    sp.expand(_scaled(_outcomes(side, horizon, self.outcomes, values)))
                    for side in statement.args
                )
                yield self._compare(statement, lhs, rhs)

        return _all(verdicts(), f"T = 1..{self.horizons[-1]}, {self.outcomes} outcomes, real terms")

    @staticmethod
    def _compare(statement: sp.Basic, lhs: sp.Expr, rhs: sp.Expr) -> Verdict:
        if not isinstance(statement, sp.Le):
            raise ValueError("the triangle inequality is an inequality")
        left = [a for a in (lhs.free_symbols | rhs.free_symbols) if not _is_model(a)]
        if left or lhs.has(E) or rhs.has(E):
            raise ValueError(f"{left} has no interpretation in this lemma's model")
        return prove_le(lhs, rhs)


def _scaled(expression: sp.Expr) -> sp.Expr:
    """Common positive denominator 1: weights are taken to sum to one."""
    weights = sum(sorted((a for a in expression.free_symbols if a.name.startswith("w")), key=str))
    return expression.xreplace({1 / weights: sp.S.One}) if weights != 0 else expression


@dataclass(frozen=True)
class Moments(_NoNeeds):
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
                    def values(
                        i: int, signs: tuple[int, ...] = signs
                    ) -> dict[sp.Basic, sp.Expr]:
                        found = {self.first: signs[i] * _nonneg(f"a{i}")}
                        if self.second is not None:
                            found[self.second] = _nonneg(f"k{i}") ** 2
                        return found

                    lhs, rhs = (_outcomes(side, 0, n, values) for side in statement.args)
                    yield _decide(statement.func(lhs, rhs, evaluate=False), {})

        return _all(verdicts(), "2..3 outcomes, any weights")


@dataclass(frozen=True)
class SumCauchySchwarz(_NoNeeds):
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
                values = {self.first[i]: _nonneg(f"a{i}") ** 2 for i in range(1, n + 1)}
                values |= {marks[i]: _nonneg(f"b{i}") ** 2 for i in range(1, n + 1)}
                lhs, rhs = (
                    unroll(side.replace(self._hides, mark).xreplace({self.second: marks[t]}), n)
                    for side in statement.args
                )
                yield _decide(statement.func(lhs, rhs, evaluate=False), values)

        if not (low.has(t) or high.has(t)):
            raise ValueError("the inner sum does not depend on the position")
        return _all(verdicts(), "T = 1..4, any nonnegative terms")

    def _hides(self, node: sp.Basic) -> bool:
        """Whether the node is a sum of ``second`` over positions, merged into one double sum."""
        return (
            isinstance(node, sp.Sum)
            and len(node.limits) == 2
            and node.function == self.second.function
            and node.limits[0] == self.second.limits[0]
        )


@dataclass(frozen=True)
class FiniteSums(_NoNeeds):
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
                    self.terms[i]: _nonneg(f"k{i}") for i in range(1, n + 1)
                }
                if self.mean is not None:
                    values[self.mean] = sum(values.values()) / n
                lhs, rhs = (unroll(side, n) for side in statement.args)
                yield _decide(statement.func(lhs, rhs, evaluate=False), values)

        return _all(verdicts(), f"T = 1..{self.deepest}, any nonnegative terms")


@dataclass(frozen=True)
class MinCases(_NoNeeds):
    """An identity between minima of 1 and powers of one nonnegative symbol, case by case."""

    symbol: sp.Symbol

    def run(self, statement: sp.Basic, context: Context) -> StepResult:
        r = _nonneg("r")
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
                if any(not all(map(_is_model, side.free_symbols)) for side in sides):
                    raise ValueError("a symbol has no interpretation")
                yield prove_eq(*sides) if isinstance(statement, sp.Eq) else prove_le(*sides)

        return _all(verdicts(), f"all {self.symbol} >= 0, both cases of each minimum")


def _smaller(node: sp.Basic, z: sp.Symbol, value: sp.Expr) -> sp.Expr:
    args = [argument.subs(z, value) for argument in node.args]
    for candidate in args:
        if all(prove_nonneg(other - candidate) for other in args):
            return candidate
    raise ValueError("the smaller argument is not decided")


@dataclass(frozen=True)
class Definition(_NoNeeds):
    """``rho_t = exp(l_t)``, the log importance ratio."""

    def run(self, statement: sp.Basic, context: Context) -> StepResult:
        p, q = sp.symbols("p_m q_m", positive=True)
        values = {rho[t]: q / p, ell_t[t]: sp.log(q / p)}
        return _from(_decide(statement, values), "all positive probabilities")


@dataclass(frozen=True)
class Routes:
    """``a <= min(routes)``: each route is a chain of earlier steps that starts at ``a``."""

    atom: sp.Expr
    routes: tuple[tuple[str, ...], ...]

    def needs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(key for route in self.routes for key in route))

    def conclusion(self, steps: Mapping[str, Step]) -> sp.Basic:
        """The statement that the routes give."""
        ends = []
        for route in self.routes:
            end = self.atom
            for key in route:
                end = rewrite(end, steps[key].statement)
            ends.append(end)
        return sp.Le(self.atom, sp.Min(*ends), evaluate=False)

    def run(self, statement: sp.Basic, context: Context) -> StepResult:
        expected = self.conclusion(context.steps)
        if (
            not isinstance(statement, sp.Le)
            or statement.lhs != expected.lhs
            or not same(statement.rhs, expected.rhs)
        ):
            return StepResult(
                "refuted", "assembly", "", f"the routes give {expected}, not {statement}"
            )
        return _checked("computed from the steps above", "each replacement shown nondecreasing")


@dataclass(frozen=True)
class Assembly:
    """The bound, computed by replacing left sides by right sides, step after step."""

    start: sp.Expr
    chain: tuple[str, ...]
    uses_bound = True

    def needs(self) -> tuple[str, ...]:
        return self.chain

    def run(self, statement: sp.Basic, context: Context) -> StepResult:
        value = canonical(self.start)
        try:
            for key in self.chain:
                value = rewrite(value, context.steps[key].statement)
        except Exception as error:
            return StepResult("refuted", "assembly", "", f"step {key}: {error}")
        used = set(self.chain)
        for key in reversed(list(context.steps)):
            if key in used:
                used.update(context.steps[key].check.needs())
        unused = [key for key in context.steps if key not in used]
        if unused:
            return StepResult("refuted", "assembly", "", f"steps not used: {', '.join(unused)}")
        lhs, rhs = statement.args
        bound = context.bound
        if bound is None or lhs != self.start:
            return StepResult("refuted", "assembly", "", f"the left side is not {self.start}")
        for name, claimed in (("the statement", rhs), ("the registry", bound.expression)):
            if not same(value, claimed):
                return StepResult(
                    "refuted", "assembly", "", f"the steps give {value}; {name} has {claimed}"
                )
        exact = all(isinstance(context.steps[key].statement, sp.Eq) for key in self.chain)
        if isinstance(statement, sp.Eq) and not exact:
            return StepResult("refuted", "assembly", "", "an equality needs equalities only")
        return _checked(
            "computed from the steps above", "each replacement shown nondecreasing, any T"
        )


@dataclass(frozen=True)
class MemberProof(_NoNeeds):
    """A member of a minimum: its own proof is verified, and it must state this bound."""

    name: str

    def run(self, statement: sp.Basic, context: Context) -> StepResult:
        from bounds import registry

        bound = registry.get(self.name)
        if bound.proof is None:
            raise ValueError(f"{self.name} has no proof")
        proof = bound.proof(bound)
        report = proof.verify()
        if not report.ok:
            return StepResult("refuted", "assembly", "", f"the proof of {self.name} fails")
        claim = proof.steps[-1].statement
        if statement != claim:
            return StepResult(
                "refuted", "assembly", "", f"the proof of {self.name} ends with another statement"
            )
        if not report.complete:
            count = report.count("assumed")
            raise ValueError(f"the proof of {self.name} has {count} assumed steps")
        return _checked("its own proof", f"{len(report.steps)} steps, all checked")


@dataclass(frozen=True)
class LeastMember:
    """The least of valid bounds is a bound."""

    members: tuple[str, ...]
    uses_bound = True

    def needs(self) -> tuple[str, ...]:
        return self.members

    def run(self, statement: sp.Basic, context: Context) -> StepResult:
        lhs, rhs = statement.args
        bound = context.bound
        claims = [context.steps[key].statement for key in self.members]
        ends = {claim.rhs for claim in claims}
        unused = [key for key in context.steps if key not in self.members]
        good = (
            isinstance(statement, sp.Le)
            and all(isinstance(claim, sp.Le) and claim.lhs == lhs for claim in claims)
            and isinstance(rhs, sp.Min)
            and set(rhs.args) == ends
            and not unused
            and bound is not None
            and isinstance(bound.expression, sp.Min)
            and set(bound.expression.args) == ends
        )
        if not good:
            return StepResult("refuted", "assembly", "", "not the minimum of the members above")
        return _checked("computed from the steps above", "minimum of valid bounds")
