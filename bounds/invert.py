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
from bounds.evaluate import Evaluation, Status, evaluate
from bounds.quantities import QUANTITIES

#: Largest horizon searched, in tokens.
LONGEST = 10**9
#: Range of token KL searched, nats.
KL_RANGE = (1e-30, 1e3)


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
    fixed = _scalars(given, target)
    fixed.pop("T", None)

    def at(points: np.ndarray) -> Evaluation:
        return evaluate(names, validate=False, T=points, **_consistent(fixed, T=points))

    names = list(bounds) if bounds is not None else list(registry.names())
    evaluate(names, T=float(LONGEST), **fixed)
    return _search("T", names, at, target, 0.0, float(LONGEST), _middle_whole)


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
    fixed = _scalars(given, target)
    fixed.pop("kl_max", None)
    if "T" not in fixed:
        raise InputError("--T (T) is missing; the largest KL depends on the horizon")

    def at(points: np.ndarray) -> Evaluation:
        return evaluate(names, validate=False, kl_max=points, **_consistent(fixed, kl_max=points))

    names = list(bounds) if bounds is not None else list(registry.names())
    evaluate(names, kl_max=KL_RANGE[1], **fixed)
    return _search("kl_max", names, at, target, KL_RANGE[0], KL_RANGE[1], _middle_log)


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


def _consistent(fixed: dict[str, Any], **moving: np.ndarray) -> dict[str, Any]:
    """``fixed`` with whole-trajectory KL and TV kept within what the chain rule allows."""
    values: dict[str, Any] = dict(fixed)
    horizon = moving.get("T", fixed.get("T"))
    kl = moving.get("kl_max", fixed.get("kl_max"))
    if "kl_seq" in values and kl is not None and horizon is not None:
        values["kl_seq"] = np.minimum(values["kl_seq"], horizon * kl)
    if "tv_seq" in values and "tv_max" in values and horizon is not None:
        values["tv_seq"] = np.minimum(values["tv_seq"], horizon * values["tv_max"])
    return values


def _middle_whole(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    return np.floor((low + high) / 2)


def _middle_log(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    return np.asarray(np.sqrt(low) * np.sqrt(high))


def _search(
    variable: Literal["T", "kl_max"],
    names: list[str],
    at: Callable[[np.ndarray], Evaluation],
    target: float,
    lowest: float,
    highest: float,
    middle: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> tuple[Inverse, ...]:
    count = len(names)

    def within(points: np.ndarray) -> np.ndarray:
        result = np.zeros(count, dtype=bool)
        for i, entry in enumerate(at(points).bounds):
            if entry.value is not None:
                result[i] = np.broadcast_to(np.asarray(entry.value), (count,))[i] <= target
        return result

    everywhere = within(np.full(count, highest))
    nowhere = ~within(np.full(count, max(lowest, 1.0) if variable == "T" else lowest))
    low, high = np.full(count, lowest), np.full(count, highest)
    for _ in range(200):
        centre = middle(low, high)
        if np.all((centre <= low) | (centre >= high)):
            break
        inside = within(np.maximum(centre, 1.0) if variable == "T" else centre)
        low, high = np.where(inside, centre, low), np.where(inside, high, centre)
    final = at(np.full(count, highest)).bounds
    return tuple(
        Inverse(
            name,
            variable,
            None
            if entry.value is None
            else float("inf")
            if everywhere[i]
            else 0.0
            if nowhere[i]
            else float(low[i]),
            target,
            entry.status,
        )
        for i, (name, entry) in enumerate(zip(names, final, strict=True))
    )
