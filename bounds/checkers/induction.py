"""Checkers that conclude by induction over positions from two premises."""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

from bounds.atoms import E, chi, hel, rho, root
from bounds.checkers.base import checked
from bounds.proof import Context, StepResult
from bounds.prover import prove_nonneg
from bounds.quantities import T, j, t


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
        return checked("induction", "all t, symbolic")


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
        return checked("induction", "all t, symbolic")


@dataclass(frozen=True)
class AffinityInduction:
    """``E[(N_n - 1)^2] <= 2 - 2 prod_(j<=n) (1 - b_j/2)``, n = t - 1 or T.

    From ``E[(N_n - 1)^2] = 2 - 2 E N_n``, ``E N_t = E[N_(t-1) (1 - h_t/2)]`` and
    ``h_t <= b_t <= 2``: by induction ``E N_n`` is at least the product (``N >= 0`` and every
    factor is in [0, 1]).

    Attributes:
        square, recursion, largest: keys of the premises.
    """

    square: str
    recursion: str
    largest: str

    def needs(self) -> tuple[str, ...]:
        return (self.square, self.recursion, self.largest)

    def run(self, statement: sp.Basic, context: Context) -> StepResult:
        past = sp.Product(root[j], (j, 1, t - 1))
        now = sp.Product(root[j], (j, 1, t))
        largest = context.steps[self.largest].statement
        if not isinstance(largest, sp.Le) or largest.lhs != hel[t]:
            raise ValueError("the premise is not a bound on h_t")
        recursion = context.steps[self.recursion].statement
        if recursion != sp.Eq(E(now), E(past * (1 - hel[t] / 2)), evaluate=False):
            raise ValueError("the recursion of E N_t is not what the premise states")
        if not isinstance(statement, sp.Le):
            raise ValueError("not an upper bound")
        for last in (t - 1, T):
            length = sp.Product(root[j], (j, 1, last))
            if statement.lhs == E((length - 1) ** 2):
                break
        else:
            raise ValueError("the left side is not E[(N - 1)^2]")
        square = context.steps[self.square].statement
        if square != sp.Eq(statement.lhs, 2 - 2 * E(length), evaluate=False):
            raise ValueError("the square is not what the premise states")
        factor = 1 - largest.rhs / 2
        affinity = sp.Product(factor.subs(t, j), (j, 1, last))
        if sp.expand(statement.rhs - (2 - 2 * affinity)) != 0:
            return StepResult("refuted", "induction", "", f"the induction gives 2 - 2 {affinity}")
        return checked("induction", "all t, symbolic; every factor 1 - h/2 is in [0, 1]")


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
