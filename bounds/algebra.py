"""Rewriting of abstract expressions: canonical form, signs, monotonicity, replacement.

These are what a proof's assembly is made of: an inequality ``a <= b`` may replace ``a`` by ``b``
only in an expression that is shown here to be nondecreasing in ``a``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import sympy as sp

from bounds.atoms import on_path
from bounds.quantities import Expectation, T, t


class RewriteError(Exception):
    """A replacement that is not justified."""


@cache
def canonical(node: sp.Basic) -> sp.Basic:
    """Constants out of sums and expectations, constant sums and products done, roots split."""
    if not node.args or isinstance(node, (sp.Indexed, sp.Tuple)):
        return node
    if isinstance(node, sp.Min):
        return sp.Min(*[canonical(argument) for argument in node.args])
    if isinstance(node, (sp.Sum, sp.Product)):
        return _canonical_series(node)
    args = [canonical(argument) for argument in node.args]
    if isinstance(node, Expectation):
        if not on_path(args[0]):
            return args[0]
        inner, outer = _separate(args[0], on_path)
        return outer * Expectation(inner)
    if isinstance(node, sp.Abs) and nonnegative(args[0]):
        return args[0]
    if isinstance(node, sp.Pow) and isinstance(args[0], sp.Mul) and not args[1].is_integer:
        factors = args[0].args
        if all(nonnegative(factor) for factor in factors):
            return sp.Mul(*[sp.Pow(factor, args[1]) for factor in factors])
    return node.func(*args)


def _separate(body: sp.Basic, depends: Callable[[sp.Basic], bool]) -> tuple[sp.Expr, sp.Expr]:
    """``(dependent factor, constant factor)``."""
    factors = sp.Mul.make_args(body)
    inside = [f for f in factors if depends(f)]
    outside = [f for f in factors if not depends(f)]
    return sp.Mul(*inside), sp.Mul(*outside)


def _canonical_series(node: sp.Sum | sp.Product) -> sp.Basic:
    index, low, high = node.limits[0]
    body = canonical(node.function)
    if len(node.limits) > 1:
        if isinstance(node, sp.Product):
            raise RewriteError("one index at a time")
        if not body.has(index):
            return canonical(sp.Sum(body * sp.expand(high - low + 1), *node.limits[1:]))
        indices = [limit[0] for limit in node.limits]
        inner, outer = _separate(body, lambda factor: factor.has(*indices))
        return outer * sp.Sum(inner, *node.limits)
    count = sp.expand(high - low + 1)
    if isinstance(node, sp.Product):
        if not body.has(index):
            return body**count
        if isinstance(body, sp.exp):
            return sp.exp(sp.Sum(body.args[0], (index, low, high)))
        return sp.Product(body, (index, low, high))
    if not body.has(index):
        return body * count
    inner, outer = _separate(body, lambda factor: factor.has(index))
    return outer * sp.Sum(inner, (index, low, high))


def nonnegative(node: sp.Basic) -> bool:
    """Whether the expression is shown to be >= 0 for positions ``1 <= t <= T``.

    All abstract quantities are real, so even powers are nonnegative.
    """
    if node.is_nonnegative:
        return True
    if isinstance(node, (sp.Abs, sp.exp)):
        return True
    if isinstance(node, (Expectation, sp.Sum)):
        return nonnegative(node.args[0])
    if isinstance(node, sp.Product):
        return nonnegative(node.function)
    if isinstance(node, (sp.Mul, sp.Min)):
        return all(nonnegative(argument) for argument in node.args)
    if isinstance(node, sp.Pow):
        return bool(node.exp.is_even) or nonnegative(node.base)
    if isinstance(node, sp.Add):
        if all(nonnegative(argument) for argument in node.args):
            return True
        if _at_least_one(node + 1):
            return True
        ahead = sp.Symbol("m", integer=True, nonnegative=True)
        return bool(node.has(T) and node.has(t) and node.subs(T, t + ahead).is_nonnegative)
    return False


def _at_least_one(node: sp.Basic) -> bool:
    """``prod (1 + u) >= 1`` and ``(1 + u)**n >= 1`` for ``u, n >= 0``."""
    if isinstance(node, sp.Product):
        return nonnegative(node.function - 1)
    if isinstance(node, sp.Pow):
        return nonnegative(node.base - 1) and nonnegative(node.exp)
    return False


def nondecreasing(node: sp.Basic, z: sp.Symbol) -> bool:
    """Whether the expression is shown to be nondecreasing in ``z``, where it is defined."""
    if not node.has(z) or node == z:
        return True
    if isinstance(node, (sp.Add, sp.Min)):
        return all(nondecreasing(argument, z) for argument in node.args)
    if isinstance(node, sp.Mul):
        moving = [argument for argument in node.args if argument.has(z)]
        signed = node.args if len(moving) > 1 else [a for a in node.args if not a.has(z)]
        return all(nondecreasing(a, z) for a in moving) and all(map(nonnegative, signed))
    if isinstance(node, sp.Pow):
        if node.exp.has(z) or not nonnegative(node.exp) or not nondecreasing(node.base, z):
            return False
        # a root is taken of a value that is nonnegative already and only grows
        return bool(node.exp.is_odd) or node.exp.is_integer is False or nonnegative(node.base)
    if isinstance(node, (sp.Sum, Expectation)):
        return nondecreasing(node.args[0], z)
    if isinstance(node, sp.Product):
        return nonnegative(node.function) and nondecreasing(node.function, z)
    return False


def rewrite(expression: sp.Expr, relation: sp.Basic) -> sp.Expr:
    """``expression`` with the left side of ``relation`` replaced by its right side.

    A statement about ``a[t]`` with a free position applies at every position.

    Raises:
        RewriteError: the left side does not occur, or the relation is ``<=`` and the expression is
            not shown to be nondecreasing in it.
    """
    if not isinstance(relation, (sp.Eq, sp.Le)):
        raise RewriteError(f"{relation} is neither an equality nor <=")
    lhs, rhs = canonical(relation.lhs), canonical(relation.rhs)
    expression = canonical(expression)
    places: dict[sp.Basic, sp.Basic] = {}
    if isinstance(lhs, sp.Indexed):
        (index,) = lhs.indices
        for atom in expression.atoms(sp.Indexed):
            if atom.base == lhs.base and (index.is_Symbol or atom == lhs):
                places[atom] = rhs.subs(index, atom.indices[0]) if index.is_Symbol else rhs
    elif any(node == lhs for node in sp.preorder_traversal(expression)):
        places[lhs] = rhs
    elif isinstance(lhs, sp.Add) and isinstance(relation, sp.Eq) and expression.has(-lhs):
        # an absolute value may hold the other sign
        places[-lhs] = -rhs
    elif isinstance(lhs, sp.Mul):
        for product in expression.atoms(sp.Mul):
            if set(lhs.args) <= set(product.args):
                rest = [factor for factor in product.args if factor not in lhs.args]
                if isinstance(relation, sp.Le) and not all(map(nonnegative, rest)):
                    raise RewriteError(f"{product} has a factor of unknown sign")
                places[product] = sp.Mul(rhs, *rest)
    if not places:
        raise RewriteError(f"{lhs} does not occur in {expression}")
    if isinstance(relation, sp.Le):
        z = sp.Dummy("z", nonnegative=True) if nonnegative(lhs) else sp.Dummy("z", real=True)
        marked = expression.xreplace(dict.fromkeys(places, z))
        if not nondecreasing(marked, z):
            raise RewriteError(f"{expression} is not shown to be nondecreasing in {lhs}")
    return canonical(expression.xreplace(places))


def same(left: sp.Expr, right: sp.Expr) -> bool:
    """Whether two expressions are equal after canonical form and expansion."""
    if left == right:
        return True
    left, right = canonical(left), canonical(right)
    return bool(left == right or sp.expand(left - right) == 0)
