"""Checkers that compute a statement from earlier steps: routes, bounds, minima."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import sympy as sp

from bounds.algebra import canonical, rewrite, same
from bounds.checkers.base import NoNeeds, checked
from bounds.proof import Context, Step, StepResult


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
        return checked("computed from the steps above", "each replacement shown nondecreasing")


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
        return checked(
            "computed from the steps above", "each replacement shown nondecreasing, any T"
        )


@dataclass(frozen=True)
class MemberProof(NoNeeds):
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
        return checked("its own proof", f"{len(report.steps)} steps, all checked")


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
        return checked("computed from the steps above", "minimum of valid bounds")
