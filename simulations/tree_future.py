"""How far apart the two futures of each context are, and what each step of Adaptive gives away.

The Adaptive bound (TRM, arXiv 2512.23075) reaches ``2 sum_t D_t w_t`` (range constant: ours) in
three steps, each an inequality whose two sides are computed here exactly:

1. triangle inequality over positions: ``Oracle <= sum_t E_roll|rho_t - 1| TVfut(c_{t+1})``;
2. the largest future total variation of the position instead of the context's own;
3. a route for that future (1, coupling, Pinsker) instead of its exact value.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from simulations.contexts import TreeShape
from simulations.tree_tokens import token_laws


@dataclass(frozen=True)
class AdaptiveSteps:
    """The chain ``oracle <= triangle <= largest_future`` of a batch of trees, each ``[B]``.

    Attributes:
        oracle: largest |error| over rewards in [0, 1].
        triangle: ``sum_t E_roll[|rho_t - 1| TVfut(c_{t+1})]``.
        largest_future: ``2 sum_t D_t max_c TVfut`` over reached contexts of the next position.
    """

    oracle: Tensor
    triangle: Tensor
    largest_future: Tensor


def future_tv(log_roll: Tensor, log_theta: Tensor, *, shape: TreeShape) -> Tensor:
    """Total variation between the two laws of the rest of the sequence, from every context.

    Args:
        log_roll, log_theta: float64 ``[B, C, V]`` log-probs, nats, as in
            :func:`simulations.trees.tree_quantities`.
        shape: horizon and vocabulary.

    Returns:
        float64 ``[B, C]``, in [0, 1]; entry 0 is TVseq.

    Source: TRM, proof of Adaptive, step 2 (arXiv 2512.23075); exact enumeration.
    """
    batch = len(log_roll)
    found: list[Tensor] = []
    roll = torch.ones(batch, shape.leaves, 1, dtype=log_roll.dtype, device=log_roll.device)
    gap = torch.zeros_like(roll)
    for t in reversed(range(shape.T)):
        laws = token_laws(log_roll[:, shape.level(t)], log_theta[:, shape.level(t)])
        rows = (batch, shape.V**t, shape.V, -1)
        below, apart = roll.reshape(rows), gap.reshape(rows)
        difference = laws.difference[..., None]
        gap = (laws.theta[..., None] * apart + difference * below).flatten(2)
        roll = (laws.roll[..., None] * below).flatten(2)
        found.append(0.5 * gap.abs().sum(-1))
    return torch.cat(found[::-1], dim=1)


def adaptive_steps(log_roll: Tensor, log_theta: Tensor, *, shape: TreeShape) -> AdaptiveSteps:
    """Exact values of the quantities between the Oracle and sharp Adaptive.

    Args:
        log_roll, log_theta: float64 ``[B, C, V]`` log-probs, nats.
        shape: horizon and vocabulary.

    Source: TRM, proof of Adaptive (arXiv 2512.23075), with the range constant of ours.
    """
    future = future_tv(log_roll, log_theta, shape=shape)
    roll = torch.ones(len(log_roll), 1, dtype=log_roll.dtype, device=log_roll.device)
    gap, excess = torch.zeros_like(roll), torch.zeros_like(roll)
    triangle = torch.zeros(len(log_roll), dtype=log_roll.dtype, device=log_roll.device)
    largest = torch.zeros_like(triangle)
    for t in range(shape.T):
        laws = token_laws(log_roll[:, shape.level(t)], log_theta[:, shape.level(t)])
        moved = (roll[..., None] * laws.difference.abs()).flatten(1)
        after_roll = (roll[..., None] * laws.roll).flatten(1)
        after_gap = (gap[..., None] * laws.theta + roll[..., None] * laws.difference).flatten(1)
        excess = (excess[..., None] * laws.roll + gap[..., None] * laws.difference).flatten(1)
        roll, gap = after_roll, after_gap
        if t + 1 < shape.T:
            ahead = future[:, shape.level(t + 1)]
            reached = (roll > 0) | (roll + gap > 0)
            triangle = triangle + (moved * ahead).sum(-1)
            worst = torch.where(reached, ahead, torch.zeros_like(ahead)).amax(-1)
            largest = largest + moved.sum(-1) * worst
    return AdaptiveSteps(0.5 * excess.abs().sum(-1), triangle, largest)
