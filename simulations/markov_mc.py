r"""Monte Carlo for what dynamic programming cannot reach: sequence TV and the Oracle.

Paths are drawn from roll, all members of a batch and all paths at once. What is averaged is
nonnegative and tame where ratios are not: ``TV = E_roll[max(0, 1 - M)]`` and, as
``E_roll W = 0``, ``Oracle = E_roll[max(0, -W)]`` with ``W = M - 1 - S``. Their second moments have
*exact* bounds from the dynamic program: ``min(TV_high, 4 H_seq)``, and ``min(E W^2, 1 + sum X_t)``
(for ``-W <= 1 + S`` and ``S`` is a martingale). So Catoni's estimator gives intervals that hold
at the stated level for this many paths, heavy tails or not; no appeal to normality.

Source: O. Catoni, *Challenging the empirical mean and empirical variance* (2012), Proposition 2.4.
The second-moment bounds are ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from bounds.errors import InputError
from simulations.markov import MarkovQuantities, markov_quantities
from simulations.tree_tokens import token_laws

#: Paths alive at once, over the whole batch.
_CHUNK: Final = 2**20
#: Past this the product of ratios is taken from its logarithm.
_HUGE: Final = 1e150
_BISECTIONS: Final = 60


@dataclass(frozen=True)
class Interval:
    """A Monte Carlo estimate, each float64 ``[B]``.

    Attributes:
        value: Catoni's estimate, within the interval.
        low, high: contains the truth with probability ``level`` at least, each member by itself.
        mean: plain sample mean.
        level: of the interval.
        n: paths a member.
        label: what the interval rests on.
    """

    value: Tensor
    low: Tensor
    high: Tensor
    mean: Tensor
    level: float
    n: int
    label: str = "Monte Carlo: Catoni's interval with an exact bound on the second moment"


@dataclass(frozen=True)
class MarkovSample:
    """Intervals of what has no dynamic program: ``tv_seq`` and ``oracle``."""

    tv_seq: Interval
    oracle: Interval


def markov_monte_carlo(
    log_roll: Tensor,
    log_theta: Tensor,
    next_state: Tensor,
    *,
    T: int,
    n: int,
    seed: int,
    start: Tensor | None = None,
    level: float = 0.95,
    exact: MarkovQuantities | None = None,
) -> MarkovSample:
    """Sequence TV and reward-free Oracle of a batch of Markov MDPs, with valid intervals.

    Args:
        log_roll, log_theta, next_state, T, start: as in
            :func:`simulations.markov.markov_quantities`.
        n: paths a member.
        seed: the result is reproducible to the bit on CPU.
        level: of each interval, in (0, 1).
        exact: this batch's quantities, if at hand; else they are computed (and input checked).

    Raises:
        InputError: as :func:`~simulations.markov.markov_quantities`, options out of range, or theta
            has mass where roll, at a state that it reaches, has none (the Oracle then has a part
            that no sample of roll shows).

    Source: the module's text.
    """
    if not 0 < level < 1:
        raise InputError(f"level is {level}; give one in (0, 1) such as 0.95")
    log_term = math.log(2 / (1 - level))
    if not n > 2 * log_term:
        raise InputError(f"n is {n}; give at least {math.ceil(2 * log_term) + 1} paths")
    if exact is None:
        exact = markov_quantities(log_roll, log_theta, next_state, T=T, start=start)
    missing = torch.isinf(exact.chi2_mean)
    if bool(missing.any()):
        raise InputError(
            f"row {int(missing.nonzero()[0])}: theta has mass on a token to which roll gives none; "
            "no sample of roll shows it: give roll some mass there"
        )
    batch = len(log_roll)
    size = max(1, _CHUNK // batch)
    generator = torch.Generator(log_roll.device).manual_seed(seed)
    sampler = _Sampler(log_roll, log_theta, next_state, start)
    parts = [sampler.draw(min(size, n - i), T, generator) for i in range(0, n, size)]
    gaps, deficits = (torch.cat(list(part), -1) for part in zip(*parts, strict=True))
    tv_moment = torch.minimum(exact.tv_seq_high, 4 * exact.hel_seq)
    tv = catoni(gaps, tv_moment, level, exact.tv_seq_low, exact.tv_seq_high)
    oracle_moment = torch.minimum(4 * exact.oracle_high**2, 1 + T * exact.chi2_mean)
    none = torch.zeros_like(exact.oracle_high)
    oracle = catoni(deficits, oracle_moment, level, none, exact.oracle_high)
    return MarkovSample(tv, oracle)


class _Sampler:
    """Draws paths from roll by inverting cumulative probabilities."""

    def __init__(
        self, log_roll: Tensor, log_theta: Tensor, next_state: Tensor, start: Tensor | None
    ) -> None:
        laws = token_laws(log_roll, log_theta)
        p = laws.roll
        self.batch, self.states, self.tokens = p.shape
        self.gain = torch.where(p > 0, laws.difference / p.clamp(min=1e-300), 0.0).flatten()
        self.log_ratio = torch.where(p > 0, log_theta - log_roll, 0.0).flatten()
        self.cumulative = p.cumsum(-1).flatten()
        self.next_state = next_state.flatten()
        self.first: Tensor | None = None
        self.start_law: Tensor | None = None
        if start is not None and start.dtype == torch.int64:
            self.first = start
        elif start is not None:
            self.start_law = start.cumsum(-1).flatten()
        self.member = torch.arange(self.batch, device=p.device).unsqueeze(-1)

    def draw(self, n: int, T: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """``max(0, 1 - M)`` and ``max(0, -W)`` of ``n`` paths a member, each ``[B, n]``."""
        device = self.gain.device
        options: dict[str, Any] = {"dtype": torch.float64, "device": device}

        def uniform() -> Tensor:
            return torch.rand((self.batch, n), generator=generator, **options)

        state = torch.zeros((self.batch, n), dtype=torch.int64, device=device)
        if self.first is not None:
            state = state + self.first.unsqueeze(-1)
        elif self.start_law is not None:
            head = self.member * self.states
            state = _invert(self.start_law, head.expand(-1, n), self.states, uniform())
        m, W, S, log_m = (torch.zeros((self.batch, n), **options) for _ in range(4))
        huge = torch.zeros((self.batch, n), dtype=torch.bool, device=device)
        for _ in range(T):
            row = (self.member * self.states + state) * self.tokens
            at = row + _invert(self.cumulative, row, self.tokens, uniform())
            gain = self.gain[at]
            W = W + gain * m
            S = S + gain
            log_m = log_m + self.log_ratio[at]
            m = m + gain * (m + 1)
            huge |= m > _HUGE
            m = m.clamp(max=_HUGE)
            state = self.next_state[at]
        deficit = torch.where(huge, S - torch.expm1(log_m), -W)
        return -torch.expm1(log_m.clamp(max=0)), deficit.clamp(min=0)


def _invert(cumulative: Tensor, head: Tensor, count: int, u: Tensor) -> Tensor:
    """First of ``count`` entries from ``head`` on whose cumulative mass exceeds ``u`` of it all."""
    total = cumulative[head + (count - 1)]
    u = torch.minimum(u * total, torch.nextafter(total, torch.zeros_like(total)))
    low, high = torch.zeros_like(head), torch.full_like(head, count - 1)
    for _ in range((count - 1).bit_length()):
        middle = (low + high) // 2
        beyond = cumulative[head + middle] <= u
        low = torch.where(beyond, middle + 1, low)
        high = torch.where(beyond, high, middle)
    return high


def catoni(z: Tensor, variance: Tensor, level: float, low: Tensor, high: Tensor) -> Interval:
    """Interval of a mean whose variance is at most ``variance``.

    Args:
        z: float64 ``[B, n]``, independent along the last axis.
        variance: float64 ``[B]``, known beforehand; not read off ``z``.
        level: in (0, 1), and ``n > 2 log(2/(1 - level))``.
        low, high: ``[B]``, certain bounds on the mean.

    Source: Catoni 2012, Proposition 2.4.
    """
    n = z.shape[-1]
    log_term = math.log(2 / (1 - level))
    spread = variance.clamp(min=1e-300)
    half = (2 * variance * log_term / (n - 2 * log_term)).sqrt()
    scale = (2 * log_term / (n * spread * (1 + 2 * log_term / (n - 2 * log_term)))).sqrt()
    left, right = z.amin(-1), z.amax(-1)
    for _ in range(_BISECTIONS):
        middle = (left + right) / 2
        x = scale.unsqueeze(-1) * (z - middle.unsqueeze(-1))
        size = x.abs()
        above = (torch.log1p(size + size * size / 2) * x.sign()).sum(-1) > 0
        left, right = torch.where(above, middle, left), torch.where(above, right, middle)
    centre = (left + right) / 2
    bottom = torch.minimum(torch.maximum(centre - half, low), high)
    top = torch.maximum(torch.minimum(centre + half, high), low)
    value = torch.minimum(torch.maximum(centre, bottom), top)
    return Interval(value, bottom, top, z.mean(-1), level, n)
