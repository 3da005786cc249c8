"""The inverse question: how long may sequences be, or how far may the policies drift?

Every registered bound is nondecreasing in the horizon and in the token KL, so the largest
admissible value is found by bisection, for all bounds at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from bounds import registry
from bounds.errors import InputError
from bounds.evaluate import Evaluation, Status, evaluate, resolve
from bounds.quantities import QUANTITIES
from bounds.validate import LIMITS

#: Largest horizon searched, in tokens.
LONGEST = 10**9
#: Range of token KL searched, nats.
KL_RANGE = (1e-30, 1e3)


@dataclass(frozen=True)
class Search:
    """What is varied, between which ends, and how an interval is halved."""

    variable: Literal["T", "kl_max"]
    lowest: float
    highest: float
    middle: Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Inverse:
    """Largest value of ``variable`` at which a bound stays at or below ``target``.

    Attributes:
        name: registry name.
        variable: ``"T"`` or ``"kl_max"``.
        value: the largest admissible value; ``inf`` when none within the search range breaks the
            target (also when the bound does not depend on the variable); 0 when no value meets it;
            None when inputs are missing.
        target: the target, in reward units.
        status: status of the bound's inputs.
    """

    name: str
    variable: Literal["T", "kl_max"]
    value: float | None
    target: float
    status: Status


def largest_horizon(
    target: float = 1.0, bounds: Iterable[str] | None = None, **given: Any
) -> tuple[Inverse, ...]:
    """The longest T with ``bound <= target``, the rest held (``K_seq`` at most ``T delta``).

    Args:
        target: in reward units.
        bounds: registry names; all when None.
        **given: scalar quantities; ``T`` is ignored.

    Raises:
        InputError: bad input, or per-position arrays (their length fixes T).
    """
    return _search(Search("T", 1.0, float(LONGEST), _middle_whole), target, bounds, given)


def largest_kl(
    target: float = 1.0, bounds: Iterable[str] | None = None, **given: Any
) -> tuple[Inverse, ...]:
    """The largest token KL ``delta`` with ``bound <= target`` at horizon ``T``, the rest held.

    Args:
        target: in reward units.
        bounds: registry names; all when None.
        **given: scalar quantities including ``T``; ``kl_max`` is ignored.

    Raises:
        InputError: bad input, no ``T``, or per-position arrays.
    """
    if given.get("T") is None:
        raise InputError("--T (T) is missing; the largest KL depends on the horizon")
    return _search(Search("kl_max", *KL_RANGE, _middle_log), target, bounds, given)


def _scalars(given: Mapping[str, Any], target: float) -> dict[str, Any]:
    if not target > 0 or not np.isfinite(target):
        raise InputError(f"--target is {target}; give a positive number of reward units")
    fixed = {}
    for name, value in given.items():
        if value is None:
            continue
        if name not in QUANTITIES:
            raise InputError(f"no quantity is called {name!r}; known: {', '.join(QUANTITIES)}")
        if np.ndim(value):
            raise InputError(
                f"{QUANTITIES[name].option} ({name}) is an array; inversion takes scalars"
            )
        fixed[name] = float(value)
    return fixed


def _consistent(values: dict[str, Any]) -> dict[str, Any]:
    """``values`` with whole-trajectory KL and TV kept within what the chain rule allows."""
    for limit in LIMITS:
        if limit.per_token and {limit.low, limit.high, "T"} <= values.keys():
            most = values["T"] * values[limit.high]
            values[limit.low] = np.minimum(values[limit.low], most)
    return values


def _middle_whole(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    return np.floor((low + high) / 2)


def _middle_log(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    return np.asarray(np.sqrt(low) * np.sqrt(high))


def _search(
    search: Search, target: float, bounds: Iterable[str] | None, given: Mapping[str, Any]
) -> tuple[Inverse, ...]:
    """Bisect for all bounds at once: element ``i`` of the moving quantity is bound ``i``'s."""
    fixed = _scalars(given, target)
    fixed.pop(search.variable, None)
    resolve({search.variable: search.highest, **fixed})
    names = list(bounds) if bounds is not None else list(registry.names())
    count = len(names)

    def at(points: np.ndarray) -> Evaluation:
        moving = _consistent({search.variable: points, **fixed})
        return evaluate(names, validate=False, **moving)

    def within(points: np.ndarray) -> np.ndarray:
        result = np.zeros(count, dtype=bool)
        for i, entry in enumerate(at(points).bounds):
            if entry.value is not None:
                result[i] = np.broadcast_to(np.asarray(entry.value), (count,))[i] <= target
        return result

    low, high = np.full(count, search.lowest), np.full(count, search.highest)
    value = np.where(within(high), np.inf, np.where(within(low), np.nan, 0.0))
    for _ in range(200):
        centre = search.middle(low, high)
        if np.all((centre <= low) | (centre >= high)):
            break
        inside = within(centre)
        low, high = np.where(inside, centre, low), np.where(inside, high, centre)
    value = np.where(np.isnan(value), low, value)
    return tuple(
        Inverse(
            name,
            search.variable,
            None if entry.value is None else float(value[i]),
            target,
            entry.status,
        )
        for i, (name, entry) in enumerate(zip(names, at(high), strict=True))
    )
