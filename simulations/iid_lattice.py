r"""A certified bracket of sequence total variation for i.i.d. tokens: many tokens, long horizons.

Where counts are too many to enumerate, log-ratios go to a grid of step ``h`` and their law is
raised to the ``T``-th convolution power by FFT. ``TV = E_roll[phi(M)]``, ``phi(m) = max(0, 1 - m)``
convex, with the kink at 1. Both ends are rigorous.

**Upper.** Each ratio is split between the grid points around it, its mean under roll kept: ``M``
becomes ``M' = M Y`` with ``E[Y | tokens] = 1``, and a convex function's mean can only grow
(Doroshenko et al., *Connect the Dots*, arXiv 2207.04380, for privacy-loss distributions).

**Lower.** By how much can it grow? ``phi(M') - phi(M) - phi'(M) M (Y - 1)`` is 0 unless ``M'`` and
``M`` lie on both sides of 1, and then at most ``M |Y - 1|``. So the growth is at most
``E_theta[|Y - 1|; |log M| <= |log Y|]``. Given the tokens, ``Y`` is a product of independent
factors of mean 1 between ``exp(-h)`` and ``exp(h)``, so ``E (Y - 1)^2 <= (1 + v)^T - 1 =: V``,
``v = (exp(h) - 1)(1 - exp(-h))``; each ``log`` lies in an interval of length ``h`` and has mean
between ``-h^2/8`` and 0, so by Hoeffding ``P(|log Y| > b) <= e^2`` for
``b = h sqrt(T log(2/e^2)/2) + T h^2/8``. Hence, by Cauchy and Schwarz,

    ``growth <= sqrt(V) (exp(b) E_roll[M'; |log M'| <= 2b] + e^2 + e)``,

second order in ``h``. (Ours.)

A window of the grid holds all but a tail of the mass, by Chernoff's inequality at the best of a set
of exponents; what lies outside, and the FFT's rounding, are added to (or taken from) the result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from bounds.errors import InputError
from simulations.iid import check_laws
from simulations.tree_tokens import token_laws

#: Mass that may lie beyond each end of the window.
_TAIL: Final = 1e-14
#: Grid points of the FFT at most.
MAX_GRID: Final = 2**24
#: ``e`` of the module's text.
_RARE: Final = 1e-7
#: Rounding of the spectrum's power, per step: a few units in the last place, with margin.
_ROUNDING: Final = 16 * 2.220446049250313e-16


@dataclass(frozen=True)
class Bracket:
    """``low <= TV <= high``; float64 ``[B]``. ``grid`` is the FFT's size."""

    low: Tensor
    high: Tensor
    grid: int


def iid_tv_bracket(
    log_roll: Tensor, log_theta: Tensor, T: int, *, points: int = 2**18, validate: bool = True
) -> Bracket:
    """Rigorous bracket of the total variation of ``T`` i.i.d. tokens.

    Args:
        log_roll: float64 ``[B, V]`` log-probs of a token under roll, nats; ``-inf`` is no mass.
        log_theta: the same for theta. Supports may differ.
        T: horizon.
        points: grid points, a power of two; the bracket narrows as
            their inverse square.
        validate: check shapes, dtype and normalisation.

    Raises:
        InputError: as above, or ``points`` is no power of two in 2^6..2^24.

    Members are taken one at a time, each by two FFTs; memory O(points).

    Source: the module's text; the lower end and the window are ours.
    """
    if validate:
        check_laws(log_roll, log_theta, T)
        if points & (points - 1) or not 64 <= points <= MAX_GRID:
            raise InputError(f"points is {points}; give a power of two in 64..{MAX_GRID}")
    laws = token_laws(log_roll, log_theta)
    spread = torch.where(torch.isfinite(log_theta - log_roll), log_theta - log_roll, 0.0)
    lows, highs = [], []
    for row in range(len(log_roll)):
        p = laws.roll[row]
        # a token that theta never emits: M = 0 from then on, phi = 1
        alive = (p > 0) & (laws.theta[row] > 0)
        ell, mass = spread[row][alive], p[alive]
        low, high = _bracket(ell, mass, T, points)
        floor = float(-torch.expm1(T * torch.log1p(-(laws.hel[row] / 2).clamp(max=1))))
        highest = min(1.0, high, math.sqrt(max(floor * (2 - floor), 0.0)), T * float(laws.tv[row]))
        lows.append(min(max(low, floor * (1 - 1e-12)), highest))
        highs.append(highest)
    return Bracket(log_roll.new_tensor(lows), log_roll.new_tensor(highs), points)


def _bracket(ell: Tensor, mass: Tensor, T: int, points: int) -> tuple[float, float]:
    if not len(ell):
        return 1.0, 1.0
    low_end, high_end = _window(ell, mass, T)
    step = max((high_end - low_end) / (points - 8), 1e-290)
    index, split = _split(ell, mass, step)
    first = math.floor(low_end / step) - 4
    outside = _outside(index, split, T, first, points)
    value = _power(index, split, T, first, points)
    log_m = step * (first + torch.arange(points, dtype=mass.dtype, device=mass.device))
    survived = math.exp(T * math.log(min(1.0, float(mass.sum()))))
    total = float((value * -torch.expm1(log_m.clamp(max=0))).sum()) + (1.0 - survived)
    # Parseval: an error in the spectrum is one in the L1 norm, times sqrt(points) at most
    slack = outside + _ROUNDING * (T + math.log2(points)) * math.sqrt(points)
    growth = _growth(value, log_m, T, step, slack)
    return total - slack - growth, total + slack


def _split(ell: Tensor, mass: Tensor, step: float) -> tuple[Tensor, Tensor]:
    """Grid indices and masses with the same mean ratio for every token."""
    below = torch.floor(ell / step)
    # share s above: exp(l) = (1 - s) exp(b) + s exp(b + step)
    share = (torch.expm1(ell - below * step) / math.expm1(step)).clamp(0, 1)
    return torch.cat([below, below + 1]).long(), torch.cat([mass * (1 - share), mass * share])


def _growth(value: Tensor, log_m: Tensor, T: int, step: float, slack: float) -> float:
    """By how much splitting may have raised the mean of ``phi`` (see the module's text)."""
    if step > 1:
        return 1.0
    variance = math.expm1(min(700.0, T * math.log1p(math.expm1(step) * -math.expm1(-step))))
    b = step * math.sqrt(T * math.log(2 / _RARE**2) / 2) + T * step * step / 8
    if b > 1:
        return 1.0
    near = (log_m.abs() <= 2 * b + step).to(value.dtype)
    mass = float((value.clamp(min=0) * near * torch.exp(log_m * near)).sum())
    # what the window or rounding hides weighs exp(2b) at most there
    return math.sqrt(variance) * (math.exp(b) * (mass + 21 * slack) + _RARE**2 + _RARE)


def _window(ell: Tensor, mass: Tensor, T: int) -> tuple[float, float]:
    """Ends beyond each of which ``T`` tokens' log-ratio has mass under ``_TAIL``, with room."""
    ends = []
    for sign in (-1.0, 1.0):
        x = sign * ell
        exponents = _exponents(ell, mass, T)
        moment = torch.logsumexp(exponents[:, None] * x + mass.log(), -1)
        far = float(((T * moment - math.log(_TAIL)) / exponents).min())
        ends.append(sign * min(far, T * float(x.max())))
    room = 0.01 * (ends[1] - ends[0]) + 1e-280
    return ends[0] - room, ends[1] + room


def _exponents(x: Tensor, mass: Tensor, T: int) -> Tensor:
    """Chernoff exponents to try: on the scale of the sum's deviation."""
    centre = (x * mass).sum() / mass.sum()
    deviation = float(((x - centre) ** 2 * mass).sum().sqrt().clamp(min=1e-280))
    grid = torch.logspace(-3, 3, 601, dtype=x.dtype, device=x.device)
    return (grid / (deviation * math.sqrt(T))).clamp(max=1e290)


def _power(index: Tensor, mass: Tensor, T: int, first: int, points: int) -> Tensor:
    """``T``-fold convolution of a law on the grid, at indices ``first..first + points - 1``."""
    law = torch.zeros(points, dtype=mass.dtype, device=mass.device)
    law.index_add_(0, index % points, mass)
    spectrum = torch.fft.rfft(law)
    angle = torch.remainder(T * spectrum.angle(), 2 * math.pi)
    value = torch.fft.irfft(torch.polar(spectrum.abs() ** T, angle), points)
    return torch.roll(value, -(first % points))


def _outside(index: Tensor, mass: Tensor, T: int, first: int, points: int) -> float:
    """Mass of the convolution power outside the window, at most."""
    kept = mass > 0
    x, weight = index[kept].to(mass.dtype), mass[kept]
    exponents = _exponents(x, weight, T)
    lost = 0.0
    for sign, end in ((-1.0, first - 1), (1.0, first + points)):
        if sign * end > T * float((sign * x).max()):
            continue
        moment = torch.logsumexp(sign * exponents[:, None] * x + weight.log(), -1)
        lost += math.exp(min(0.0, float((T * moment - exponents * sign * end).min())))
    return min(1.0, lost)
