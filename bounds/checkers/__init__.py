"""Checkers: each interprets the abstract symbols of a statement in a model and proves it there.

A checker never trusts the statement's wording: it substitutes the model's expressions for the
abstract symbols and proves the resulting relation, so a changed constant, sign or exponent changes
what has to be proven. A symbol that the model does not interpret makes the check fail.
"""

from bounds.checkers.assembly import Assembly, LeastMember, MemberProof, Routes
from bounds.checkers.induction import AffinityInduction, Induction, ProductInduction
from bounds.checkers.laws import (
    BernoulliPinsker,
    ChainStep,
    CouplingStep,
    EventSplit,
    Largest,
    LogSum,
    Marginal,
    MeanBelowMax,
    UnitTV,
    Vertices,
)
from bounds.checkers.sums import FiniteSums, MinCases, SumCauchySchwarz, SumRule, Triangle
from bounds.checkers.tree import Definition, Moments, PathIdentity, PathTriangle, TreeIdentity

__all__ = [
    "AffinityInduction",
    "Assembly",
    "BernoulliPinsker",
    "ChainStep",
    "CouplingStep",
    "Definition",
    "EventSplit",
    "FiniteSums",
    "Induction",
    "Largest",
    "LeastMember",
    "LogSum",
    "Marginal",
    "MeanBelowMax",
    "MemberProof",
    "MinCases",
    "Moments",
    "PathIdentity",
    "PathTriangle",
    "ProductInduction",
    "Routes",
    "SumCauchySchwarz",
    "SumRule",
    "TreeIdentity",
    "Triangle",
    "UnitTV",
    "Vertices",
]
