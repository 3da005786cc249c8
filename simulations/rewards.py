"""Reward models on whole sequences, always in [0, 1]."""

from __future__ import annotations

import torch
from torch import Tensor

from bounds.errors import InputError
from simulations.contexts import TreeShape


def uniform(shape: TreeShape, batch: int, generator: torch.Generator) -> Tensor:
    """Independent rewards, uniform in [0, 1]: float64 ``[batch, V^T]``."""
    return torch.rand(
        batch, shape.leaves, generator=generator, dtype=torch.float64, device=generator.device
    )


def sparse_terminal(
    shape: TreeShape, batch: int, generator: torch.Generator, *, share: float = 0.05
) -> Tensor:
    """1 on about ``share`` of the sequences (at least one of them), 0 elsewhere: a verifier.

    Raises:
        InputError: ``share`` is not in (0, 1].
    """
    if not 0 < share <= 1:
        raise InputError(f"share is {share:g}; give the share of right answers, in (0, 1]")
    draws = uniform(shape, batch, generator)
    best = draws == draws.amin(-1, keepdim=True)
    return ((draws < share) | best).double()


def worst_case(excess: Tensor) -> Tensor:
    """The reward in [0, 1] with the largest error: 1 where a sequence's error weight is positive.

    Args:
        excess: float64 ``[B, V^T]`` error weights, see :func:`simulations.trees.leaf_weights`.

    Source: the Oracle, ours: ``sup over R in [0, 1] of |Error| = E_roll|W| / 2``.
    """
    return (excess > 0).to(excess.dtype)
