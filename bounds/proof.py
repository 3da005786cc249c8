"""Proofs as data: numbered steps, each a sympy relation with a checker that verifies it.

A checker verifies the *statement itself*: it interprets the abstract symbols in a model and proves
exactly that relation. Beside that, every statement is tried on random rational trees with interval
arithmetic. What is neither proven nor violated is "assumed".
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Literal, Protocol

import sympy as sp

from bounds.atoms import on_path
from bounds.numeric_tree import numeric_trees
from bounds.quantities import t
from bounds.symbolic_tree import Unsupported

if TYPE_CHECKING:
    from bounds.registry import Bound

Status = Literal["checked", "refuted", "assumed"]


@dataclass(frozen=True)
class StepResult:
    """Outcome of one step's check.

    Attributes:
        status: checked (proven), refuted (violated, with a witness) or assumed (neither).
        method: symbolic, sum-of-squares, interval, derivative certificate, ...
        scope: on what domain the check holds.
        detail: witness or reason, empty when checked.
    """

    status: Status
    method: str
    scope: str = ""
    detail: str = ""


@dataclass(frozen=True)
class Context:
    """What a checker may look at beside its statement: earlier steps by key, and the bound."""

    steps: Mapping[str, Step]
    bound: Bound | None


class Checker(Hashable, Protocol):
    """Proves or refutes one statement. Implementations are hashable."""

    def run(self, statement: sp.Basic, context: Context) -> StepResult:
        """Verify ``statement``; never return "checked" for anything but that relation."""
        ...

    def needs(self) -> tuple[str, ...]:
        """Keys of the earlier steps that the check uses."""
        ...


@dataclass(frozen=True)
class Step:
    """One step of a proof.

    Attributes:
        key: name by which later steps refer to it.
        lemma: name of the lemma.
        text: what it says, in words.
        statement: sympy relation (``Eq`` or ``Le``).
        check: its checker.
    """

    key: str
    lemma: str
    text: str
    statement: sp.Basic
    check: Checker


@dataclass(frozen=True)
class CheckedStep:
    """A numbered step with its result."""

    number: int
    step: Step
    result: StepResult


@dataclass(frozen=True)
class ProofReport:
    """All steps of a proof with their results.

    Attributes:
        bound: the registry entry.
        steps: numbered steps.
    """

    bound: Bound
    steps: tuple[CheckedStep, ...]

    def count(self, status: Status) -> int:
        """Number of steps with this status."""
        return sum(item.result.status == status for item in self.steps)

    @property
    def ok(self) -> bool:
        """No step is refuted."""
        return self.count("refuted") == 0

    @property
    def complete(self) -> bool:
        """Every step is checked."""
        return self.count("checked") == len(self.steps)

    def __str__(self) -> str:
        from bounds.latex import plain

        lines = [
            f"{self.bound.title} ({self.bound.name}): |Error| <= {plain(self.bound.expression)}"
        ]
        for item in self.steps:
            scope = f"; {item.result.scope}" if item.result.scope else ""
            lines += [
                f"{item.number}. {item.step.text}",
                f"   lemma: {item.step.lemma}",
                f"   {plain(item.step.statement)}",
                f"   {item.result.status} ({item.result.method}{scope})",
            ]
            if item.result.detail:
                lines.append(f"   {item.result.detail}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Proof:
    """A derivation of ``bound.expression``.

    Attributes:
        bound: the registry entry.
        steps: steps in order; the last one assembles the earlier ones into the bound.
    """

    bound: Bound
    steps: tuple[Step, ...] = field(repr=False)

    def verify(self) -> ProofReport:
        """Check every step."""
        done: dict[str, Step] = {}
        results = []
        for number, step in enumerate(self.steps, 1):
            results.append(
                CheckedStep(number, step, verify_step(step, Context(dict(done), self.bound)))
            )
            if step.key in done:
                results[-1] = CheckedStep(
                    number, step, StepResult("refuted", "assembly", "", f"two steps {step.key!r}")
                )
            done[step.key] = step
        return ProofReport(self.bound, tuple(results))


def verify_step(step: Step, context: Context) -> StepResult:
    """Prove the step's statement, and try to refute it on random trees."""
    if not isinstance(step.statement, (sp.Eq, sp.Le)):
        return StepResult("refuted", "form", "", f"{step.statement} is not an equality or <=")
    violation = try_on_trees(step.statement).violation
    if violation:
        return StepResult("refuted", "interval", "random rational trees", violation)
    premises = tuple((key, context.steps.get(key)) for key in step.check.needs())
    if any(premise is None for _, premise in premises):
        return StepResult("refuted", "assembly", "", "a premise is missing")
    if premises or getattr(step.check, "uses_bound", False):
        return _run(step.check, step.statement, context)
    return _cached_run(step.check, step.statement)


@cache
def _cached_run(check: Checker, statement: sp.Basic) -> StepResult:
    return _run(check, statement, Context({}, None))


def _run(check: Checker, statement: sp.Basic, context: Context) -> StepResult:
    try:
        return check.run(statement, context)
    except Exception as error:  # whatever stops a check, the step is not checked
        reason = " ".join(str(error).split())[:300]
        return StepResult("assumed", "none", "", f"not proven: {reason or type(error).__name__}")


@dataclass(frozen=True)
class Trial:
    """Evaluation of a statement on random trees.

    Attributes:
        compared: how often both sides could be evaluated.
        violation: the first certified violation, in words; empty if none was found.
    """

    compared: int
    violation: str


@cache
def try_on_trees(statement: sp.Basic) -> Trial:
    """Evaluate both sides on random rational trees, at every position and path, by intervals.

    A violation is certified; its absence is no proof.
    """
    lhs, rhs = statement.args
    compared = 0
    for tree in numeric_trees():
        for index in range(1, tree.horizon + 1) if statement.has(t) else (1,):
            for path in tree.nodes(tree.horizon) if on_path(statement) else (None,):
                try:
                    left = tree.evaluate(lhs, {t: index}, path)
                    right = tree.evaluate(rhs, {t: index}, path)
                except (Unsupported, ArithmeticError, ValueError):
                    continue
                compared += 1
                if left.a > right.b or (isinstance(statement, sp.Eq) and left.b < right.a):
                    return Trial(
                        compared,
                        f"violated on a tree with T = {tree.horizon}, |V| = {tree.tokens}"
                        + (f", t = {index}" if statement.has(t) else "")
                        + f": left side {float(left.mid):.6g}, right side {float(right.mid):.6g}",
                    )
    return Trial(compared, "")
