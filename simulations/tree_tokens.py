"""Token divergences of a batch of contexts, kept exact where the two policies nearly agree.

Every divergence is a sum of termwise nonnegative parts of ``x = log theta - log roll`` and of
``d = theta - roll``, never a difference of nearly equal sums, so policies that differ by 1e-9 keep
their digits. Everything is differentiable in the log-probs wherever both are finite.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

#: Below this |x| the parts of KL come from the power series of ``exp(x) - 1 - x``.
_SERIES: Final = 0.05
_HORNER: Final = (9, 8, 7, 6, 5, 4, 3)
#: Keeps the derivative of a square root finite where a mass is zero.
_FLOOR: Final = 1e-300
#: Stands for the log-probability of a token without mass; exp of it is zero.
_FAR: Final = -1e30


@dataclass(frozen=True)
class TokenLaws:
    """Both next-token laws at each context, and what separates them.

    Attributes:
        roll: ``[..., V]`` probabilities under roll.
        theta: ``[..., V]`` probabilities under theta.
        difference: ``[..., V]`` theta - roll, without cancellation.
        kl: ``[...]`` KL(roll || theta), nats; ``inf`` where roll has mass and theta has none.
        tv: ``[...]`` total variation.
        chi2: ``[...]`` chi2(theta || roll); ``inf`` where theta has mass and roll has none.
        hel: ``[...]`` squared Hellinger distance, in [0, 2].
        quartic: ``[...]`` E_roll[(sqrt(rho) - 1)^4]; ``inf`` as for chi2.
    """

    roll: Tensor
    theta: Tensor
    difference: Tensor
    kl: Tensor
    tv: Tensor
    chi2: Tensor
    hel: Tensor
    quartic: Tensor


def token_laws(log_roll: Tensor, log_theta: Tensor) -> TokenLaws:
    """Both laws and their divergences at every context.

    Args:
        log_roll: float64 ``[..., V]`` log-probs of roll, nats; ``-inf`` is no mass.
        log_theta: float64 ``[..., V]`` log-probs of theta.

    Source: definitions of TRM section 2 (arXiv 2512.23075); cancellation-free forms ours.
    """
    x = log_theta.clamp(min=_FAR) - log_roll.clamp(min=_FAR)
    roll, theta = log_roll.exp(), log_theta.exp()
    rise = -torch.expm1(-x.abs())
    difference = torch.where(x > 0, theta * rise, -(roll * rise))

    # sum of theta - roll - roll x: the first two cancel over the vocabulary, term by term they
    # make every part nonnegative
    one = torch.ones((), dtype=x.dtype, device=x.device)
    series = torch.addcmul(one, one, x, value=1 / _HORNER[0])
    for n in _HORNER[1:]:
        series = torch.addcmul(one, x, series, value=1 / n)
    weighted = roll * x
    part = torch.where(x.abs() < _SERIES, 0.5 * weighted * (x * series), difference - weighted)
    kl = part.sum(-1).clamp(min=0)

    mass = roll.clamp(min=_FLOOR)
    roots = theta.clamp(min=_FLOOR).sqrt() + mass.sqrt()
    root_gap = difference / roots
    hel_part = root_gap * root_gap
    chi2 = (difference * difference / mass).sum(-1)
    quartic = (hel_part * hel_part / mass).sum(-1)

    no_roll, no_theta = log_roll == -torch.inf, log_theta == -torch.inf
    roll_only, theta_only = (no_theta > no_roll).any(-1), (no_roll > no_theta).any(-1)
    return TokenLaws(
        roll=roll,
        theta=theta,
        difference=difference,
        kl=kl.masked_fill(roll_only, torch.inf),
        tv=0.5 * difference.abs().sum(-1),
        chi2=chi2.masked_fill(theta_only, torch.inf),
        hel=hel_part.sum(-1),
        quartic=quartic.masked_fill(theta_only, torch.inf),
    )
