"""Checks of the given quantities: legal ranges, whole horizons, and mutual consistency."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import array_api_compat

from bounds.compile import Positions
from bounds.errors import InputError
from bounds.quantities import QUANTITIES, Quantity

#: Relative slack for consistency checks between given numbers, to allow their rounding.
SLACK = 1e-9


@dataclass(frozen=True)
class Limit:
    """``low <= high`` (``T * high`` when ``per_token``), which every policy pair satisfies."""

    low: str
    high: str
    per_token: bool
    why: str


LIMITS: Final = (
    Limit("kl_seq", "kl_max", True, "chain rule"),
    Limit("tv_seq", "tv_max", True, "coupling"),
    Limit("chi2_mean", "chi2_max", False, "a mean is at most the maximum"),
    Limit("hel_mean", "hel_max", False, "a mean is at most the maximum"),
    Limit("hel_seq", "hel_max", True, "the affinity of the laws is at least that of the tokens"),
)


def _label(quantity: Quantity) -> str:
    return f"{quantity.option} ({quantity.name})"


def _first(xp: Any, values: Any, bad: Any) -> float:
    return float(values[bad][0]) if values.ndim else float(values)


def check(given: Mapping[str, Any]) -> None:
    """Raise :class:`InputError` at the first quantity out of range or contradicting another.

    Args:
        given: quantity name -> float64 array or :class:`~bounds.compile.Positions`.
    """
    for name, value in given.items():
        _check_range(QUANTITIES[name], value.values if isinstance(value, Positions) else value)
    _check_lengths(given)
    _check_consistency(given)


def _check_range(quantity: Quantity, values: Any) -> None:
    xp = array_api_compat.array_namespace(values)
    label = _label(quantity)
    if array_api_compat.size(values) == 0:
        raise InputError(f"{label} is empty; give at least one value")
    if bool(xp.any(xp.isnan(values))):
        raise InputError(f"{label} is NaN; give a number")
    if quantity.kind == "log-ratio":
        if bool(xp.any(values == float("inf"))):
            raise InputError(
                f"{label} is +inf: roll sampled a token to which it gives no mass; "
                "check that the log-probs belong to the sampled tokens"
            )
        return
    if quantity.kind == "count":
        bad = (values < 1) | (values != xp.floor(values)) | xp.isinf(values)
        if bool(xp.any(bad)):
            raise InputError(
                f"{label} is {_first(xp, values, bad):g}; a horizon is a whole number >= 1"
            )
        return
    bad = values < 0
    if bool(xp.any(bad)):
        raise InputError(
            f"{label} is {_first(xp, values, bad):g}; a divergence is >= 0 "
            "(was its sign taken the other way?)"
        )
    bad = values > quantity.upper
    if bool(xp.any(bad)):
        why = (
            "total variation is at most 1 (it is half of the L1 distance)"
            if quantity.kind == "tv"
            else "a squared Hellinger distance, sum (sqrt(theta) - sqrt(roll))^2, is at most 2"
        )
        raise InputError(f"{label} is {_first(xp, values, bad):g}; {why}")


def _check_lengths(given: Mapping[str, Any]) -> None:
    lengths = {
        name: value.values.shape[-1]
        for name, value in given.items()
        if isinstance(value, Positions) and not value.constant
    }
    if not lengths:
        return
    if len(set(lengths.values())) > 1:
        listing = ", ".join(f"{name}: {n}" for name, n in lengths.items())
        raise InputError(
            f"per-position inputs differ in length ({listing}); give one value per position"
        )
    n = next(iter(lengths.values()))
    if n == 0:
        raise InputError("per-position inputs are empty; give one value per position")
    horizon = given.get("T")
    if horizon is not None:
        xp = array_api_compat.array_namespace(horizon)
        if bool(xp.any(horizon != n)):
            raise InputError(
                f"--T (T) is {float(xp.reshape(horizon, (-1,))[0]):g} but the per-position inputs "
                f"have {n} positions; leave T out or make them agree"
            )


def _check_consistency(given: Mapping[str, Any]) -> None:
    for limit in LIMITS:
        low, high = limit.low, limit.high
        if low not in given or high not in given or (limit.per_token and "T" not in given):
            continue
        most = given[high] * given["T"] if limit.per_token else given[high]
        xp = array_api_compat.array_namespace(most)
        if bool(xp.any(given[low] > most * (1 + SLACK))):
            times = "T * " if limit.per_token else ""
            raise InputError(
                f"{_label(QUANTITIES[low])} exceeds {times}{high}, which no policy pair can do "
                f"({limit.why}); lower {QUANTITIES[low].option} or raise {QUANTITIES[high].option}"
            )
