"""Grid specifications: how a command-line option names many values of one quantity.

A specification is a comma-separated list of pieces; a piece is a number or a range::

    16:65536:x2     geometric: 16, 32, ..., while <= 65536
    1:100:+10       arithmetic: 1, 11, ..., while <= 100 (``1:100:10`` is the same)
    16:65536:n25    25 log-spaced values, both ends included (whole and distinct for T)
    1,2,10:1000:x10 any mixture

The result is sorted and free of repetitions.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from bounds.errors import InputError
from bounds.quantities import QUANTITIES

FloatArray = npt.NDArray[np.float64]

#: More points than this, in one axis or in a product of axes, is refused.
MAX_POINTS: Final = 100_000_000
#: Relative slack with which the end of a range counts as reached.
_SLACK: Final = 1e-9
#: float64 holds every whole number up to here.
_LARGEST_WHOLE: Final = 2.0**53

_EXAMPLE: Final[dict[str, str]] = {
    "count": "16:65536:x2",
    "kl": "1e-6,1e-5,1e-4",
    "tv": "0.001:0.1:x10",
    "chi2": "1e-6:1e-3:n25",
    "hellinger": "1e-6:1e-3:n25",
    "quartic": "1e-12:1e-6:n25",
}


def parse_grid(name: str, spec: str) -> FloatArray:
    """Values that ``spec`` names for the quantity ``name``.

    Args:
        name: scalar quantity of :mod:`bounds.quantities`, e.g. ``"T"`` or ``"kl_max"``.
        spec: see the module's docstring.

    Returns:
        float64, shape ``[n]``, increasing and distinct; whole numbers when ``name`` is ``"T"``.
        Units are the quantity's (tokens, nats, or none).

    Raises:
        InputError: a piece that cannot be read; the message names the option, the piece, and a
            specification that works.
    """
    quantity = QUANTITIES[name]
    whole = quantity.kind == "count"
    example = f"e.g. {quantity.option} {_EXAMPLE[quantity.kind]}"

    def bad(piece: str, why: str) -> InputError:
        return InputError(f"{quantity.option} {_quoted(piece)}: {why}; {example}")

    if not spec.strip():
        raise bad(spec, "is empty")
    found: list[FloatArray] = []
    total = 0
    for piece in spec.split(","):
        try:
            values = _piece(piece, whole)
        except _Unreadable as error:
            raise bad(piece, str(error)) from None
        total += values.size
        if total > MAX_POINTS:
            raise bad(spec, f"has more than {MAX_POINTS:.0e} points")
        wrong = values[(values != np.floor(values)) | (values < 1) | (values > _LARGEST_WHOLE)]
        if whole and wrong.size:
            raise bad(piece, f"gives {wrong[0]:.15g}, but a horizon is a whole number >= 1")
        found.append(values)
    return np.unique(np.concatenate(found))


class _Unreadable(Exception):
    """Why one piece cannot be read."""


def _quoted(text: str) -> str:
    shown = " ".join(text.split())
    return repr(shown if len(shown) <= 40 else shown[:37] + "...")


def _number(text: str) -> float:
    text = text.strip()
    if not text:
        raise _Unreadable("has an empty number")
    try:
        value = float(text)
    except ValueError:
        raise _Unreadable(f"{_quoted(text)} is not a number") from None
    if not math.isfinite(value):
        raise _Unreadable(f"{_quoted(text)} is not finite")
    return value


def _piece(piece: str, whole: bool) -> FloatArray:
    parts = piece.split(":")
    if len(parts) == 1:
        return np.array([_number(piece)])
    if len(parts) != 3:
        raise _Unreadable("is neither a number nor start:stop:step")
    start, stop, step = _number(parts[0]), _number(parts[1]), parts[2].strip()
    if start > stop:
        raise _Unreadable(f"starts at {start:g}, after its end {stop:g}")
    if step[:1] in ("x", "n") and start <= 0:
        raise _Unreadable(f"starts at {start:g}, but a geometric range starts above 0")
    if step[:1] == "x":
        return _geometric(start, stop, _number(step[1:]))
    if step[:1] == "n":
        return _log_spaced(start, stop, _number(step[1:]), whole)
    return _arithmetic(start, stop, _number(step))


def _geometric(start: float, stop: float, factor: float) -> FloatArray:
    if factor <= 1:
        raise _Unreadable(f"has factor {factor:g}, but a factor is above 1")
    steps = math.floor(math.log(stop / start) / math.log(factor) + _SLACK)
    _guard(steps + 1)
    # repeated products keep whole numbers whole, which powers of floats need not
    values = np.full(steps + 1, factor)
    values[0] = start
    return np.minimum(np.cumprod(values), stop)


def _log_spaced(start: float, stop: float, count: float, whole: bool) -> FloatArray:
    if count < 1 or count != math.floor(count):
        raise _Unreadable(f"asks for {count:g} points, but a number of points is whole and >= 1")
    if count == 1 and start < stop:
        raise _Unreadable("asks for 1 point, but both ends of a range are 2")
    _guard(count)
    values = np.geomspace(start, stop, int(count))
    if whole:
        _require_whole_ends(start, stop)
        values = np.round(values)
    return np.unique(values)


def _require_whole_ends(start: float, stop: float) -> None:
    for end in (start, stop):
        if end != math.floor(end):
            raise _Unreadable(f"has the end {end:.15g}, but a horizon is a whole number >= 1")


def _arithmetic(start: float, stop: float, step: float) -> FloatArray:
    if step <= 0:
        raise _Unreadable(f"has step {step:g}, but a step is above 0")
    steps = (stop - start) / step
    _guard(steps + 1)
    return np.minimum(start + step * np.arange(math.floor(steps + _SLACK) + 1), stop)


def _guard(count: float) -> None:
    if count > MAX_POINTS:
        raise _Unreadable(f"has {count:.3g} points, more than {MAX_POINTS:.0e}")
