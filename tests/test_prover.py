"""The prover: proves what is true, refutes what is false, and calls the rest unknown."""

from __future__ import annotations

import mpmath
import pytest
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from bounds.atoms import E, Error, G, R, TVd, chi, rho
from bounds.checkers import BernoulliPinsker, LogSum, PathIdentity, SumRule, TreeIdentity
from bounds.lemmas_tree import W_PAST, eq, le, over_positions
from bounds.numeric_tree import NumericTree
from bounds.proof import Context
from bounds.prover import (
    interval_value,
    prove_by_convexity,
    prove_by_derivative,
    prove_eq,
    prove_le,
    prove_nonneg,
)
from bounds.quantities import KL_t, Kseq, T, TVseq, X_t, s, t, x
from bounds.symbolic_tree import SymbolicTree, Unsupported, symbolic_tree

a, b, c = sp.symbols("a b c", nonnegative=True)
u, v = sp.symbols("u v", real=True)
p, q = sp.symbols("p q", positive=True)
UNIT = (sp.S.Zero, sp.S.One)
NOTHING = Context({}, None)


@pytest.mark.parametrize(
    "expression",
    [
        sp.S.Zero,
        a * b + 3 * c**2,
        (a - b) ** 2,
        u**2 + v**2,
        u**2 - 2 * u * v + v**2,
        a**2 + b**2 + c**2 - a * b - b * c - a * c,
        (a + 1) / (b + 2),
        a**3 * b + a * b**3 - 2 * a**2 * b**2,
    ],
)
def test_proves_nonnegative(expression: sp.Expr) -> None:
    assert prove_nonneg(expression)


@pytest.mark.parametrize(
    "expression", [-a - 1, a - b, u, a**2 + b**2 - sp.Rational(21, 10) * a * b]
)
def test_refutes_with_a_witness(expression: sp.Expr) -> None:
    verdict = prove_nonneg(expression)
    assert verdict.outcome == "refuted"
    assert "negative at" in verdict.detail


def test_unknown_is_not_proven() -> None:
    # nonnegative, but neither a sum of squares of monomials nor on a compact box
    motzkin = u**4 * v**2 + u**2 * v**4 - 3 * u**2 * v**2 + 1
    verdict = prove_nonneg(motzkin)
    assert verdict.outcome == "unknown"
    assert not verdict


def test_interval_branch_and_bound_on_a_box() -> None:
    box = {u: (sp.Rational(-1), sp.Integer(1))}
    verdict = prove_nonneg(sp.exp(u) - 1 - u + sp.Rational(1, 100), box)
    assert verdict
    assert verdict.method == "interval"
    assert prove_nonneg(sp.exp(u) - 1 - u - sp.Rational(1, 100), box).outcome == "refuted"


def test_domain_is_respected() -> None:
    assert prove_nonneg(1 - p, {p: UNIT})
    assert prove_nonneg(1 - p, {p: (sp.S.Zero, sp.Integer(2))}).outcome == "refuted"


@given(st.lists(st.integers(-3, 3), min_size=6, max_size=6))
def test_a_proven_polynomial_has_no_negative_point(coefficients: list[int]) -> None:
    monomials = [u**2, u * v, v**2, a * u**2, a * b, b**2]
    expression = sum(k * m for k, m in zip(coefficients, monomials, strict=True))
    if not prove_nonneg(sp.sympify(expression)):
        return
    for i in range(-2, 3):
        for j in range(-2, 3):
            for k in range(3):
                for m in range(3):
                    values = {u: i, v: j, a: k, b: m}
                    assert sp.sympify(expression).subs(values) >= 0


def test_absolute_values() -> None:
    assert prove_le(sp.Abs(u + v), sp.Abs(u) + sp.Abs(v))
    assert not prove_le(sp.Abs(u) + sp.Abs(v), sp.Abs(u + v))
    assert not prove_le(sp.Abs(u + v), sp.Abs(u))
    assert not prove_le(sp.Abs(u + v), sp.Rational(99, 100) * (sp.Abs(u) + sp.Abs(v)))


def test_roots_are_squared_only_when_nonnegative() -> None:
    assert prove_le(a, sp.sqrt(a**2 + b))
    assert not prove_le(sp.sqrt(a**2 + b), a)
    assert not prove_le(a, -sp.sqrt(a**2 + b))


def test_equality() -> None:
    assert prove_eq((u + v) ** 2, u**2 + 2 * u * v + v**2)
    verdict = prove_eq((u + v) ** 2, u**2 + v**2)
    assert verdict.outcome == "refuted"


def test_derivative_certificate_is_pinsker() -> None:
    kl = p * sp.log(p / q) + (1 - p) * sp.log((1 - p) / (1 - q))
    box = {p: UNIT, q: UNIT}
    assert prove_by_derivative(kl - 2 * (p - q) ** 2, q, p, box)
    assert not prove_by_derivative(kl - sp.Rational(21, 10) * (p - q) ** 2, q, p, box)
    assert not prove_by_derivative(kl - 2 * (p - q) ** 2 - sp.Rational(1, 10), q, p, box)
    assert not prove_by_derivative(-kl, q, p, box)


def test_convexity_certificate_is_log_sum() -> None:
    m, n, k, h = sp.symbols("m n k h", positive=True)
    gap = m * sp.log(m / n) + k * sp.log(k / h) - (m + k) * sp.log((m + k) / (n + h))
    assert prove_by_convexity(gap, k, m * h / n)
    assert not prove_by_convexity(-gap, k, m * h / n)
    assert not prove_by_convexity(gap, k, m * n)
    assert not prove_by_convexity(gap - 1, k, m * h / n)


def test_interval_value_encloses() -> None:
    point = {u: mpmath.iv.mpf([0.25, 0.5])}
    value = interval_value(sp.sqrt(u) * sp.exp(-u), point)
    for number in (0.25, 0.3, 0.5):
        assert mpmath.sqrt(number) * mpmath.exp(-number) in value
    with pytest.raises(ValueError, match="logarithm"):
        interval_value(sp.log(u), {u: mpmath.iv.mpf([0, 1])})


# checkers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "status"),
    [
        (eq(Error, over_positions(G[t])), "checked"),
        (eq(Error, 2 * over_positions(G[t])), "refuted"),
        (eq(E(W_PAST), 0), "checked"),
        (eq(E(R * W_PAST), Error), "checked"),
        (eq(E(W_PAST**2), over_positions(X_t[t])), "refuted"),
        (eq(Kseq, sp.Sum(KL_t[s], (s, 1, T))), "checked"),
    ],
)
def test_identities_on_the_symbolic_tree(statement: sp.Basic, status: str) -> None:
    assert TreeIdentity().run(statement, NOTHING).status == status


def test_path_identity_goes_by_induction() -> None:
    telescoped = eq(sp.Product(rho[t], (t, 1, T)), sp.Product(rho[t], (t, 1, T)))
    assert PathIdentity().run(telescoped, NOTHING).status == "checked"


def test_pinsker_and_log_sum_checkers_read_the_statement() -> None:
    gap, coarse = sp.symbols("gap coarse", nonnegative=True)
    pinsker = BernoulliPinsker(gap, coarse)
    assert pinsker.run(le(gap, sp.sqrt(coarse / 2)), NOTHING).status == "checked"
    assert pinsker.run(le(gap, sp.sqrt(coarse / 3)), NOTHING).status != "checked"
    log_sum = LogSum(coarse, gap)
    assert log_sum.run(le(coarse, gap), NOTHING).status == "checked"
    assert log_sum.run(le(coarse, gap / 2), NOTHING).status != "checked"


@pytest.mark.parametrize(
    ("body", "closed", "relation", "good"),
    [
        (t - 1, T * (T - 1) / 2, eq, True),
        (t - 1, T * (T + 1) / 2, eq, False),
        (sp.sqrt(t - 1), sp.Rational(2, 3) * T ** sp.Rational(3, 2), le, True),
        (sp.sqrt(t - 1), sp.Rational(3, 5) * T ** sp.Rational(3, 2), le, False),
        (sp.sqrt(t - 1), sp.Rational(2, 3) * sp.sqrt(T), le, False),
        (t**2, T * (T + 1) * (2 * T + 1) / 6, eq, True),
        ((1 + x) ** (t - 1), T, eq, False),
    ],
)
def test_sum_rules(body: sp.Expr, closed: sp.Expr, relation: object, good: bool) -> None:
    statement = relation(over_positions(body), closed)  # type: ignore[operator]
    status = _run(SumRule(), statement)
    assert (status == "checked") is good


def _run(checker: SumRule, statement: sp.Basic) -> str:
    try:
        return checker.run(statement, NOTHING).status
    except (ValueError, sp.PolynomialError):
        return "assumed"


# trees ------------------------------------------------------------------------------------------


def test_trees_agree_on_what_both_can_evaluate() -> None:
    """Numbers put for the symbols of the symbolic tree give the numeric tree's values."""
    symbolic, numeric = SymbolicTree(2), NumericTree(2, 2, 1)
    values = {}
    for context, law in symbolic.p.items():
        h = float(numeric.p[context][0].mid)
        ratio = float(numeric.rho[context][0].mid)
        values[str(law[0])] = h
        values["a" + str(law[0])[1:]] = (ratio - 1) / (1 - h)
        for place, log_ratio in enumerate(symbolic.log_rho[context]):
            values[str(log_ratio)] = float(numeric.log_rho[context][place].mid)
    values |= {str(r): float(numeric.reward[y].mid) for y, r in symbolic.reward.items()}
    for quantity in (Error, G[2], Kseq, KL_t[2], X_t[2], E(R * rho[1] * chi[2])):
        expression = symbolic.evaluate(quantity).as_expr()
        exact = expression.subs({g: values.get(str(g), 0) for g in expression.free_symbols})
        assert float(exact) == pytest.approx(float(numeric.evaluate(quantity).mid), abs=1e-12)


def test_laws_of_the_numeric_tree_sum_to_one() -> None:
    tree = NumericTree(3, 3, 2)
    for context, law in tree.p.items():
        theta = [mass * ratio for mass, ratio in zip(law, tree.rho[context], strict=True)]
        assert (sum(float(mass.mid) for mass in law)) == pytest.approx(1)
        assert (sum(float(mass.mid) for mass in theta)) == pytest.approx(1)


def test_uninterpreted_expressions_are_unsupported() -> None:
    with pytest.raises(Unsupported):
        symbolic_tree(1).evaluate(sp.Symbol("nonsense"))
    with pytest.raises(Unsupported):
        symbolic_tree(2).evaluate(TVseq)
    with pytest.raises(Unsupported):
        symbolic_tree(2).evaluate(TVd[5])
    with pytest.raises(Unsupported):
        symbolic_tree(2).evaluate(rho[1])
