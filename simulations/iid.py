r"""Exact Oracle and total variation when tokens are independent and identically distributed.

A sequence's ratios then depend on the counts ``k_a`` of its tokens alone, and its probability under
roll is multinomial. Both are summed over all counts, in chunks: for two tokens ``T + 1`` terms, for
three ``T^2/2``. With ``l_a = log theta_a - log roll_a`` and ``L = sum k_a l_a``,

    ``W = M - 1 - S = f(L) - sum k_a f(l_a)``,   ``f(z) = exp(z) - 1 - z >= 0``,

so nothing is lost where ``M`` is near 1. As ``E_roll W = 0``, the Oracle is ``E_roll[max(0, -W)]``,
whose terms cannot overflow. Multinomial masses come from Stirling's error and deviances (Loader,
*Fast and accurate computation of binomial probabilities*, 2000), not from differences of
log-gammas.

Source: Oracle as in theory section 2, ours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from bounds.errors import InputError
from simulations.tree_tokens import TokenLaws, token_laws

#: Largest distance of a law's total from 1.
_SLACK: Final = 1e-9
#: Count vectors in one chunk (times the batch).
_CHUNK: Final = 2**20
#: Most count vectors that are summed.
MAX_COMPOSITIONS: Final = 200_000_000
_HALF_LOG_2PI: Final = 0.5 * math.log(2 * math.pi)
#: ``log n! - (n + 1/2) log n + n - log(2 pi)/2`` for small n, where its series is not exact.
_STIRLING_SMALL: Final = (
    0.0,
    *(
        math.fsum([math.lgamma(n + 1), -(n + 0.5) * math.log(n), n, -_HALF_LOG_2PI])
        for n in range(1, 16)
    ),
)


@dataclass(frozen=True)
class IidQuantities:
    """Exact quantities of independent, identically distributed tokens; each float64 ``[B]``.

    Attributes:
        T: horizon.
        oracle: largest |Error| over rewards in [0, 1].
        tv_seq, kl_seq, hel_seq: divergences of whole sequences.
        hel_cross: sum over t of ``h E[(sqrt M_(t-1) - 1)^2]``.
        kl, tv, chi2, hel, quartic: divergences of one token.
    """

    T: Tensor
    oracle: Tensor
    tv_seq: Tensor
    kl_seq: Tensor
    hel_seq: Tensor
    hel_cross: Tensor
    kl: Tensor
    tv: Tensor
    chi2: Tensor
    hel: Tensor
    quartic: Tensor

    def inputs(self) -> dict[str, Tensor]:
        """What :func:`bounds.evaluate.evaluate` takes, by registry name."""
        token = {f"{name}_max": getattr(self, name) for name in ("kl", "tv", "chi2", "hel")}
        token |= {f"{name}_mean": getattr(self, name) for name in ("chi2", "hel", "quartic")}
        names = ("T", "tv_seq", "kl_seq", "hel_seq", "hel_cross")
        return {**token, **{name: getattr(self, name) for name in names}}


def iid_quantities(
    log_roll: Tensor, log_theta: Tensor, T: int, *, validate: bool = True
) -> IidQuantities:
    """Exact Oracle, total variation and the rest for i.i.d. tokens.

    Args:
        log_roll: float64 ``[B, V]`` log-probs of a token under roll, nats; ``-inf`` is no mass.
        log_theta: the same for theta.
        T: horizon. Two tokens: 10^6 takes a second; three: 2000 does.
        validate: check shapes, dtype, normalisation and supports.

    Raises:
        InputError: as above, more than :data:`MAX_COMPOSITIONS` count vectors, or theta has mass
            where roll has none (the Oracle is then no function of the counts).

    Source: ours; see the module's text.
    """
    if validate:
        check_laws(log_roll, log_theta, T)
    compositions = math.comb(T + log_roll.shape[1] - 1, log_roll.shape[1] - 1)
    if compositions > MAX_COMPOSITIONS:
        raise InputError(
            f"T = {T} with {log_roll.shape[1]} tokens has {compositions:.3g} count vectors, more "
            f"than {MAX_COMPOSITIONS:.3g}; lower T or use simulations.iid_lattice"
        )
    laws = token_laws(log_roll, log_theta)
    if validate and bool(torch.isinf(laws.chi2).any()):
        row = int(torch.isinf(laws.chi2).nonzero()[0])
        raise InputError(
            f"row {row}: theta has mass on a token to which roll gives none; give roll some mass "
            "there or leave the token out"
        )
    ratio = torch.where(log_roll == -torch.inf, 0.0, log_theta - log_roll)
    shortfall = log_roll.new_zeros(len(log_roll))
    tv_seq = log_roll.new_zeros(len(log_roll))
    for counts in _compositions(T, log_roll.shape[1], len(log_roll), log_roll.device):
        mass = multinomial_mass(counts, laws.roll)
        log_m = _weighted(counts, ratio)
        tv_seq = tv_seq + (mass * -torch.expm1(log_m.clamp(max=0))).sum(-1)
        shortfall = shortfall + (mass * _shortfall(counts, ratio, log_m)).sum(-1)
    horizon = torch.full_like(tv_seq, float(T))
    return IidQuantities(
        T=horizon,
        oracle=shortfall,
        tv_seq=tv_seq.clamp(max=1),
        kl_seq=T * laws.kl,
        hel_seq=_deficit(laws.hel, horizon),
        hel_cross=_crossed(laws.hel, T),
        **_token(laws),
    )


def _token(laws: TokenLaws) -> dict[str, Tensor]:
    return {name: getattr(laws, name) for name in ("kl", "tv", "chi2", "hel", "quartic")}


def _deficit(hel: Tensor, T: Tensor) -> Tensor:
    """``2 - 2 (1 - h/2)^T``, the squared Hellinger distance of ``T`` independent tokens."""
    return -2 * torch.expm1(T * torch.log1p(-(hel / 2).clamp(max=1)))


def _crossed(hel: Tensor, T: int) -> Tensor:
    """Sum over ``n < T`` of ``h (2 - 2 (1 - h/2)^n)``, term by term: nothing cancels."""
    total = torch.zeros_like(hel)
    size = max(1, _CHUNK // len(hel))
    for start in range(1, T, size):
        n = torch.arange(start, min(start + size, T), dtype=hel.dtype, device=hel.device)
        total += _deficit(hel[:, None], n).sum(-1)
    return total * hel


def _compositions(T: int, V: int, batch: int, device: torch.device) -> Iterator[Tensor]:
    """All count vectors ``[N, V]`` with sum ``T``, float64, in chunks."""
    if V == 1:
        yield torch.full((1, 1), float(T), dtype=torch.float64, device=device)
        return
    size = max(1, _CHUNK // batch)
    stack = [
        (torch.zeros((1, 0), dtype=torch.int64, device=device), torch.tensor([T], device=device))
    ]
    while stack:
        head, left = stack.pop()
        if head.shape[1] == V - 1:
            yield torch.cat([head, left[:, None]], 1).to(torch.float64)
            continue
        children = (left + 1).cumsum(0)
        if int(children[-1]) > size and len(left) > 1:
            half = len(left) // 2
            stack += [(head[half:], left[half:]), (head[:half], left[:half])]
            continue
        parent = torch.repeat_interleave(left + 1)
        first = (children - left - 1)[parent]
        count = torch.arange(len(parent), device=device) - first
        grown = torch.cat([head[parent], count[:, None]], 1), left[parent] - count
        for i in reversed(range(0, len(parent), size)):
            stack.append((grown[0][i : i + size], grown[1][i : i + size]))


def _weighted(counts: Tensor, values: Tensor) -> Tensor:
    """``sum_a k_a v_a`` ``[B, N]`` where no count times an infinite value is zero."""
    total = torch.zeros((len(values), len(counts)), dtype=values.dtype, device=values.device)
    for a in range(values.shape[1]):
        k = counts[:, a]
        total += torch.where(k > 0, k * values[:, a, None], 0.0)
    return total


def _shortfall(counts: Tensor, ratio: Tensor, log_m: Tensor) -> Tensor:
    """``max(0, -W)`` ``[B, N]``."""
    curved = _weighted(counts, excess(ratio)) - excess(log_m)
    # a token without mass under theta: M = 0, W = -1 - S
    lost = 1 + _weighted(counts, torch.expm1(ratio))
    return torch.where(torch.isinf(log_m) & (log_m < 0), lost, curved).clamp(min=0)


def excess(z: Tensor) -> Tensor:
    """``exp(z) - 1 - z`` without cancellation."""
    series = torch.ones_like(z)
    for n in range(12, 2, -1):
        series = 1 + z * series / n
    return torch.where(z.abs() < 0.1, 0.5 * z * z * series, torch.expm1(z) - z)


def multinomial_mass(counts: Tensor, p: Tensor) -> Tensor:
    """Multinomial probabilities ``[B, N]``.

    Args:
        counts: float64 ``[N, V]`` whole numbers, each row with the same sum.
        p: float64 ``[B, V]``.

    Source: Loader 2000: ``-sum deviance(k, T p)`` and Stirling's errors.
    """
    T = counts.sum(-1)
    whole = _stirling_error(T) + _HALF_LOG_2PI + 0.5 * T.clamp(min=1).log()
    log_mass = whole.expand(len(p), -1).clone()
    for a in range(p.shape[1]):
        k = counts[:, a]
        log_mass -= _deviance(k, T * p[:, a, None])
        own = _stirling_error(k) + _HALF_LOG_2PI + 0.5 * k.clamp(min=1).log()
        log_mass -= torch.where(k > 0, own, 0.0)
    return log_mass.exp()


def _stirling_error(n: Tensor) -> Tensor:
    small = torch.tensor(_STIRLING_SMALL, dtype=n.dtype, device=n.device)
    m = n.clamp(min=1)
    s = 1 / (m * m)
    series = (1 / 12 - s * (1 / 360 - s * (1 / 1260 - s * (1 / 1680 - s / 1188)))) / m
    return torch.where(n < 16, small[n.clamp(max=15).long()], series)


def _deviance(k: Tensor, mean: Tensor) -> Tensor:
    """``k log(k / mean) + mean - k``; ``inf`` where ``k > mean = 0``."""
    gap = k - mean
    v = gap / (k + mean).clamp(min=1e-300)
    s = v * v
    tail = torch.zeros_like(v)
    for n in range(17, 1, -2):
        tail = s * (tail + 1 / n)
    near = gap * v + 2 * k * v * tail
    far = torch.where(k > 0, k * (k.clamp(min=1).log() - mean.log()), 0.0) - gap
    return torch.where(v.abs() < 0.1, near, far)


def check_laws(log_roll: Tensor, log_theta: Tensor, T: int) -> None:
    """Refuse what is no pair of laws.

    Raises:
        InputError: names the argument, its row and the mend.
    """
    if not (isinstance(T, int) and T >= 1):
        raise InputError(f"T is {T}; a horizon is a whole number >= 1")
    for name, value in (("log_roll", log_roll), ("log_theta", log_theta)):
        if value.dtype != torch.float64 or value.ndim != 2 or value.shape != log_roll.shape:
            raise InputError(
                f"{name} is {value.dtype} {list(value.shape)}; give float64 [B, V], the same for "
                "both policies"
            )
        total = value.exp().sum(-1)
        bad = ~((total - 1).abs() <= _SLACK)
        if bool(bad.any()):
            raise InputError(
                f"{name}, row {int(bad.nonzero()[0])}: probabilities sum to "
                f"{float(total[bad][0]):.9g}, not 1; pass logits through log_softmax"
            )
