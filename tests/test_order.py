"""Derived orders against the theory's table and against slopes of direct sums."""

from __future__ import annotations

from collections.abc import Callable

import mpmath
import numpy as np
import pytest
import sympy as sp

from bounds import registry
from bounds.compose import composed_expression
from bounds.order import Order, orders
from bounds.quantities import D_t, KL_t, Kseq, T, TVseq, X_t, Xbar, delta, delta_t, eps, eps_t, t, x

EXPECTED = {
    "classical-tv": ("T^2", "T^2"),
    "classical-kl": ("T^2", "T^2"),
    "pinsker-marginal-kl": ("T^(3/2)", "T"),
    "pinsker-marginal-tv": ("T^(3/2)", "T"),
    "pinsker-marginal-kl-small": ("T^(3/2)", "T^(3/2)"),
    "pinsker-marginal-positionwise-sharp": ("T^(3/2)", "T"),
    "mixed-kl": ("T", "T"),
    "mixed-tv": ("T", "T"),
    "coupling": ("T^2", "T"),
    "coupling-small": ("T^2", "T^2"),
    "coupling-positionwise-sharp": ("T^2", "T"),
    "adaptive": ("T^(3/2)", "T"),
    "adaptive-positionwise-sharp": ("T^(3/2)", "T"),
    "martingale-chi2": ("T", "exp(T)"),
    "martingale-chi2-positionwise": ("T", "exp(T)"),
    "square-root": ("T^(1/2)", "T^(1/2)"),
    "cauchy-schwarz": ("T^(3/2)", "T^(3/2)"),
    "unified": ("T", "T"),
    "unified-ours": ("T", "T^(1/2)"),
}


@pytest.mark.parametrize(("name", "expected"), EXPECTED.items())
def test_orders_of_the_family(name: str, expected: tuple[str, str]) -> None:
    small, capped = orders(registry.get(name).expression)
    assert (str(small), str(capped)) == expected


def test_sharp_versions_have_the_order_of_the_paper_form() -> None:
    for bound in registry.all_bounds():
        if bound.form == "sharp":
            paper = registry.get(bound.name.removesuffix("-sharp"))
            assert orders(bound.expression) == orders(paper.expression)


def test_mixed_grows_faster_when_the_sequence_divergence_grows() -> None:
    mixed = registry.get("mixed-kl-small").expression
    assert str(orders(mixed)[0]) == "T"
    assert str(orders(mixed.subs(Kseq, T * delta))[0]) == "T^(3/2)"
    composed = composed_expression(registry.get("mixed-kl"), ("T", "kl_max"))
    assert composed is not None
    assert [str(o) for o in orders(composed)] == ["T^(3/2)", "T"]


def test_oracle_has_no_order() -> None:
    assert orders(registry.get("oracle").expression) == (None, None)


@pytest.mark.parametrize(
    ("expression", "small", "capped"),
    [
        (delta * T**2 * (T - 1), "T^3", "T^3"),
        (sp.Min(1, eps), "1", "1"),
        (sp.Sum(sp.Min(1, (t - 1) * eps), (t, 1, T)) * T, "T^3", "T^2"),
        ((1 + x) ** T - 1, "T", "exp(T)"),
        ((1 + x) ** T - 1 - T * x - T * (T - 1) * x**2 / 2, "T^3", "exp(T)"),
        (sp.Sum((t - 1) ** sp.Rational(1, 3) * delta, (t, 1, T)), "T^(4/3)", "T^(4/3)"),
        (sp.sqrt(T) * Xbar + T * delta, "T", "T"),
        (eps * T + delta * T**3, "T", "T^3"),
    ],
)
def test_orders_of_other_expressions(expression: sp.Expr, small: str, capped: str) -> None:
    assert tuple(map(str, orders(expression))) == (small, capped)


def test_printing() -> None:
    assert str(Order(sp.Integer(0))) == "1"
    assert str(Order(sp.Integer(1))) == "T"
    assert str(Order(sp.Rational(3, 2))) == "T^(3/2)"
    assert str(Order(sp.oo)) == "exp(T)"


# numeric slopes ---------------------------------------------------------------------------------


def _direct(expression: sp.Expr, scale: float) -> Callable[[int], float]:
    """The expression as a function of T, sums done term by term; constants of size ``scale``."""
    constants = {delta: 2, eps: 1, Kseq: 2, TVseq: 1, x: 2, Xbar: 2}
    indexed = {delta_t: 2, eps_t: 1, D_t: 1, KL_t: 2, X_t: 2}
    values = {symbol: 0.3 * scale**power for symbol, power in constants.items()}
    body = expression.xreplace({symbol: sp.Float(value) for symbol, value in values.items()})
    body = body.replace(
        lambda node: isinstance(node, sp.Indexed),
        lambda node: sp.Float(
            0.3 * scale ** next(p for b, p in indexed.items() if b.label == node.base.label)
        ),
    )

    def evaluate(node: sp.Basic, env: dict[sp.Basic, np.ndarray], horizon: int) -> np.ndarray:
        if isinstance(node, sp.Sum):
            index, low, high = node.limits[0]
            if (low, high) == (1, T):
                span = np.arange(1, horizon + 1, dtype=float)
                values = evaluate(node.function, {**env, index: span}, horizon)
                return np.sum(np.broadcast_to(values, span.shape))
            count = evaluate(high - low + 1, env, horizon)
            return evaluate(node.function, env, horizon) * count
        if node == T:
            return np.float64(horizon)
        if node in env:
            return env[node]
        if node.is_number:
            return np.float64(float(node))
        args = [evaluate(argument, env, horizon) for argument in node.args]
        if isinstance(node, sp.Min):
            return np.minimum.reduce(np.broadcast_arrays(*args))
        if isinstance(node, sp.Pow):
            return np.power(*args)
        result = args[0]
        for argument in args[1:]:
            result = result + argument if isinstance(node, sp.Add) else result * argument
        return result

    return lambda horizon: float(evaluate(body, {}, horizon))


SLOPED = tuple(name for name in EXPECTED if not name.startswith(("martingale", "unified")))


@pytest.mark.parametrize("name", SLOPED)
@pytest.mark.parametrize(("regime", "scale"), [(0, 1e-9), (1, 1.0)])
def test_orders_agree_with_slopes(name: str, regime: int, scale: float) -> None:
    value = _direct(registry.get(name).expression, scale)
    small, large = 20_000, 200_000
    slope = np.log(value(large) / value(small)) / np.log(large / small)
    derived = orders(registry.get(name).expression)[regime]
    assert derived is not None
    assert slope == pytest.approx(float(derived.exponent), abs=0.02)


def test_martingale_slope_for_small_divergences() -> None:
    expression = registry.get("martingale-chi2").expression
    with mpmath.workdps(60):
        value = [
            mpmath.sqrt((1 + mpmath.mpf("1e-14")) ** n - 1 - n * mpmath.mpf("1e-14")) / 2
            for n in (10_000, 100_000)
        ]
        slope = float(mpmath.log10(value[1] / value[0]))
    derived = orders(expression)[0]
    assert derived is not None
    assert slope == pytest.approx(float(derived.exponent), abs=1e-3)
