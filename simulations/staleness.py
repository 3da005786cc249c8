"""Stale rollouts: theta is k policy-gradient steps ahead of the policy that sampled."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from simulations.contexts import TreeShape

#: Optimiser steps between the policy that sampled and the one being trained.
STEPS: Final = 4


def policy_gradient(logits: Tensor, reward: Tensor, *, shape: TreeShape) -> Tensor:
    """Exact gradient of ``J`` in the logits of a tabular policy on a tree.

    ``dJ/dz(c, a) = d(c) pi(a|c) (Q(c, a) - V(c))``, with ``d`` the probability of reaching ``c``.

    Args:
        logits: float64 ``[B, C, V]``.
        reward: float64 ``[B, V^T]``.
        shape: horizon and vocabulary.

    Returns:
        float64 ``[B, C, V]``.

    Source: policy gradient theorem (Sutton et al. 2000), by exact enumeration.
    """
    batch = len(logits)
    policy = logits.softmax(-1)
    reach = [torch.ones(batch, 1, dtype=logits.dtype, device=logits.device)]
    for t in range(shape.T - 1):
        reach.append((reach[-1][..., None] * policy[:, shape.level(t)]).flatten(1))
    gradient: list[Tensor] = []
    value = reward
    for t in reversed(range(shape.T)):
        law = policy[:, shape.level(t)]
        action = value.reshape(law.shape)
        value = (law * action).sum(-1)
        gradient.append(reach[t][..., None] * law * (action - value[..., None]))
    return torch.cat(gradient[::-1], dim=1)


def stale(logits: Tensor, strength: Tensor, generator: torch.Generator, shape: TreeShape) -> Tensor:
    """Logits of theta, :data:`STEPS` exact gradient steps after the logits of roll.

    Args:
        logits: float64 ``[B, C, V]`` of roll.
        strength: ``[B]`` step size.
        generator: draws the rewards that theta climbs, uniform in [0, 1].
        shape: horizon and vocabulary.

    Source: the staleness of asynchronous RL (TRM, arXiv 2512.23075, section 1).
    """
    reward = torch.rand(
        len(logits), shape.leaves, generator=generator, dtype=logits.dtype, device=logits.device
    )
    for _ in range(STEPS):
        step = policy_gradient(logits, reward, shape=shape)
        logits = logits + strength[:, None, None] * step
    return logits
