"""A bound's expression in the quantities that were given: the rules substituted into it.

``mixed-kl`` needs ``K_seq``; when only ``kl_max`` is given, ``K_seq = T delta`` is derived and the
order in T changes from ``T`` to ``T^(3/2)``. This module does symbolically what
:func:`bounds.evaluate.resolve` does numerically, so that orders are derived for what is evaluated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

import sympy as sp

from bounds import registry
from bounds.evaluate import Status
from bounds.quantities import QUANTITIES, constant
from bounds.registry import Bound
from bounds.rules import Rule, schedule


def composed_expression(bound: Bound, given: Iterable[str]) -> sp.Expr | None:
    """``bound`` as an expression in the given quantities only.

    Per-position quantities become the constants that bound every position.

    Args:
        bound: registry entry.
        given: names of the given quantities; per-position ones count as one value for all
            positions.

    Returns:
        A sympy expression whose free symbols are those of ``given``, or None when an input of the
        bound neither is given nor follows.
    """
    return _composed(bound.name, frozenset(given))


@lru_cache(maxsize=4096)
def _composed(name: str, given: frozenset[str]) -> sp.Expr | None:
    bound = registry.get(name)
    known = derivable(given)
    if bound.role == "minimum":
        usable = [
            _composed(member, given)
            for member in bound.members
            if all(
                known.get(i.name, (None, "missing"))[1] in ("given", "derived")
                for i in registry.get(member).inputs
            )
        ]
        return sp.Min(*usable, evaluate=False) if usable else None
    if any(quantity.name not in known for quantity in bound.inputs):
        return None
    return substitute(bound.expression, {name: expr for name, (expr, _) in known.items()})


@lru_cache(maxsize=256)
def derivable(given: frozenset[str]) -> Mapping[str, tuple[sp.Expr, Status]]:
    """Each quantity that is given or follows, with its expression and status.

    As in :func:`bounds.evaluate.resolve`: theorems first, the least where several apply; an
    approximation only for what no theorem supplies.
    """
    known: dict[str, tuple[sp.Expr, Status]] = {
        name: (_symbol(name), "given") for name in QUANTITIES if name in given
    }
    for target, rules in schedule(given):
        known[target] = _apply(rules, known)
    return known


def _apply(
    rules: list[Rule], known: Mapping[str, tuple[sp.Expr, Status]]
) -> tuple[sp.Expr, Status]:
    expressions = {name: expr for name, (expr, _) in known.items()}
    least = sp.Min(*[substitute(rule.expression, expressions) for rule in rules])
    rough = any(
        rule.kind == "approximation" or known[source][1] == "approximation"
        for rule in rules
        for source in rule.sources
    )
    return least, "approximation" if rough else "derived"


def _symbol(name: str) -> sp.Symbol:
    symbol = QUANTITIES[name].symbol
    return constant(symbol) if isinstance(symbol, sp.IndexedBase) else symbol


def substitute(expression: sp.Expr, values: Mapping[str, sp.Expr]) -> sp.Expr:
    """``expression`` with quantities replaced by expressions, the same at every position.

    Sums whose body no longer depends on the position are done, products likewise, and constant
    factors leave a sum.
    """
    replace: dict[sp.Basic, sp.Expr] = {}
    by_label = {
        quantity.symbol.label: values[name]
        for name, quantity in QUANTITIES.items()
        if quantity.per_position and name in values
    }
    for indexed in expression.atoms(sp.Indexed):
        if indexed.base.label in by_label:
            replace[indexed] = by_label[indexed.base.label]
    for name, quantity in QUANTITIES.items():
        if not quantity.per_position and name in values:
            replace[quantity.symbol] = values[name]
    return _reduce(expression.xreplace(replace))


def _reduce(expression: sp.Expr) -> sp.Expr:
    """Do sums and products of what is the same at every position; pull such factors out of sums."""
    if not expression.has(sp.Sum, sp.Product):
        return expression
    if isinstance(expression, sp.Sum | sp.Product):
        body = _reduce(expression.function)
        index, lower, upper = expression.limits[0]
        if index not in body.free_symbols:
            count = upper - lower + 1
            return count * body if isinstance(expression, sp.Sum) else body**count
        if isinstance(expression, sp.Product):
            return sp.Product(body, *expression.limits)
        factor, rest = body.as_independent(index, as_Add=False)
        return factor * sp.Sum(rest, *expression.limits)
    return expression.func(*[_reduce(argument) for argument in expression.args])
