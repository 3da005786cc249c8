"""Elementary functions that the closed forms need, stable in float64, for numpy and torch.

Each takes the array namespace ``xp`` first (``array_api_compat.array_namespace``) and is
elementwise in its array arguments, which broadcast. All results are float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import mpmath
import numpy as np

Array = Any

#: Below this many terms a power sum is read from a table; above, Euler-Maclaurin is exact to 1 ulp.
_TABLE: Final = 64
_EULER_MACLAURIN_TERMS: Final = 4
#: exp() of more than this overflows float64.
_LOG_MAX: Final = 709.0


@cache
def _power_sum_constants(p: float) -> tuple[tuple[float, ...], float, tuple[float, ...]]:
    """Table of sum_{k<=n} k^p for n <= _TABLE, zeta(-p), and Euler-Maclaurin coefficients."""
    with mpmath.workdps(40):
        exponent = mpmath.mpf(p)
        table, total = [0.0], mpmath.mpf(0)
        for k in range(1, _TABLE + 1):
            total += mpmath.mpf(k) ** exponent
            table.append(float(total))
        coefficients = []
        for i in range(1, _EULER_MACLAURIN_TERMS + 1):
            falling = mpmath.mpf(1)
            for m in range(2 * i - 1):
                falling *= exponent - m
            coefficients.append(float(mpmath.bernoulli(2 * i) / mpmath.factorial(2 * i) * falling))
        return tuple(table), float(mpmath.zeta(-exponent)), tuple(coefficients)


def power_sum(xp: Any, n: Array, p: float) -> Array:
    """``sum_{k=1}^{n} k^p`` for ``p >= 0`` in O(1) memory.

    Args:
        xp: array namespace.
        n: float64 array of nonnegative whole numbers, any shape.
        p: exponent, at least 0.

    Returns:
        float64 array shaped like ``n``; relative error below 1e-14 (Euler-Maclaurin with the
        Riemann zeta constant, a table for small ``n``).
    """
    if p == 0:
        return n
    if p == 1:
        return n * (n + 1) / 2
    table, zeta, coefficients = _power_sum_constants(p)
    large = xp.where(n < _TABLE, xp.asarray(float(_TABLE), dtype=n.dtype), n)
    value = large ** (p + 1) / (p + 1) + large**p / 2 + zeta
    for i, coefficient in enumerate(coefficients, start=1):
        value = value + coefficient * large ** (p - 2 * i + 1)
    lookup = xp.asarray(np.asarray(table), dtype=n.dtype)
    if hasattr(n, "device") and hasattr(lookup, "to"):
        lookup = lookup.to(n.device)
    index = xp.astype(xp.reshape(xp.clip(n, 0, _TABLE), (-1,)), xp.int64)
    small = xp.reshape(xp.take(lookup, index, axis=0), n.shape)
    return xp.where(n < _TABLE, small, value)


def sum_of_least_power(xp: Any, upper: Array, terms: Sequence[tuple[Array, float]]) -> Array:
    """``sum_{k=1}^{upper} min_i c_i k^{p_i}`` without a loop over k.

    The least of power laws is, in order of growing k, the steepest law, then the next, so the sum
    splits at the crossings into power sums.

    Args:
        xp: array namespace.
        upper: float64 array of whole numbers >= 0.
        terms: pairs ``(c_i, p_i)`` with float64 arrays ``c_i >= 0`` of the shape
            of ``upper`` and distinct ``p_i >= 0``.

    Returns:
        float64 array shaped like ``upper``.
    """
    ordered = sorted(terms, key=lambda term: -term[1])
    total: Array = 0.0
    low = xp.zeros_like(upper)
    for i, (c, p) in enumerate(ordered):
        high = upper
        for c_next, p_next in ordered[i + 1 :]:
            with np.errstate(over="ignore", invalid="ignore"):
                ratio = xp.where(
                    c > 0,
                    c_next / xp.where(c > 0, c, xp.ones_like(c)),
                    xp.full_like(c, float("inf")),
                )
                ratio = xp.where(xp.isnan(ratio), xp.zeros_like(ratio), ratio)
                crossing = xp.floor(ratio ** (1.0 / (p - p_next)))
            high = xp.minimum(high, crossing)
        high = xp.maximum(high, low)
        weight = power_sum(xp, high, p) - power_sum(xp, low, p)
        total = total + xp.where(weight > 0, c * weight, xp.zeros_like(weight))
        low = high
    return total


def expm1_minus_identity(xp: Any, u: Array) -> Array:
    """``exp(u) - 1 - u``, without cancellation (Taylor series where ``|u| < 1/2``)."""
    small = xp.where(xp.abs(u) < 0.5, u, xp.zeros_like(u))
    series = small * 0
    for n in range(18, 1, -1):
        series = (series + 1.0) * small / n
    direct = xp.expm1(xp.clip(u, -_LOG_MAX, _LOG_MAX)) - u
    direct = xp.where(u > _LOG_MAX, xp.full_like(u, float("inf")), direct)
    return xp.where(xp.abs(u) < 0.5, series * small, direct)


def log1p_minus_identity(xp: Any, x: Array) -> Array:
    """``log(1 + x) - x``, ``x >= -1``, without cancellation (Taylor series for ``|x| < 1/10``)."""
    small = xp.where(xp.abs(x) < 0.1, x, xp.zeros_like(x))
    series = small * 0
    for n in range(18, 1, -1):
        series = small * (1.0 / n - series)
    return xp.where(xp.abs(x) < 0.1, -series * small, xp.log1p(x) - x)


def binomial_excess(xp: Any, x: Array, n: Array) -> Array:
    """``(1 + x)^n - 1 - n x`` for ``x >= -1`` and whole ``n >= 1``: the chi-square of a product.

    Overflows to ``inf`` where the true value exceeds float64.
    """
    with np.errstate(divide="ignore"):
        u = n * xp.log1p(x)
    far = x < -0.1
    direct = xp.expm1(xp.minimum(u, xp.zeros_like(u))) - n * x
    u, x = xp.where(far, xp.zeros_like(u), u), xp.where(far, xp.zeros_like(x), x)
    value = expm1_minus_identity(xp, u) + n * log1p_minus_identity(xp, x)
    zero = xp.zeros_like(value)
    value = xp.where((n == 1) | (x == 0), zero, value)
    value = xp.where(xp.isnan(value), xp.full_like(value, float("inf")), value)
    return xp.where(far, direct, xp.where(n == 2, x * x, value))
