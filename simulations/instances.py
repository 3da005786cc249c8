"""Random (roll, theta, reward) instances on trees, reproducible to the bit on a CPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor

from bounds.errors import InputError
from simulations.contexts import TreeShape
from simulations.perturbations import Perturbation
from simulations.rewards import sparse_terminal, uniform

#: Standard deviations of base logits, drawn log-uniformly: from flat to nearly deterministic.
PEAKEDNESS: Final = (0.1, 10.0)


@dataclass(frozen=True)
class Instances:
    """A batch of instances.

    Attributes:
        log_roll, log_theta: float64 ``[B, C, V]`` log-probs, nats.
        reward: float64 ``[B, V^T]`` in [0, 1]; half of the instances uniform, half sparse.
        strength: float64 ``[B]`` perturbation strength.
        peak: float64 ``[B]`` standard deviation of the base logits.
    """

    log_roll: Tensor
    log_theta: Tensor
    reward: Tensor
    strength: Tensor
    peak: Tensor


def instance_generator(
    seed: int, block: int, device: str | torch.device = "cpu"
) -> torch.Generator:
    """An independent stream for each block of a seeded run.

    Raises:
        InputError: a negative seed or block.
    """
    if seed < 0 or block < 0:
        raise InputError(f"seed {seed}, block {block}: give whole numbers >= 0")
    state = np.random.SeedSequence(seed, spawn_key=(block,)).generate_state(1, np.uint64)[0]
    return torch.Generator(device=device).manual_seed(int(state) >> 1)


def _log_uniform(low: float, high: float, batch: int, generator: torch.Generator) -> Tensor:
    draws = torch.rand(batch, generator=generator, dtype=torch.float64, device=generator.device)
    return low * (high / low) ** draws


def random_instances(
    shape: TreeShape, batch: int, *, model: Perturbation, generator: torch.Generator
) -> Instances:
    """Draw instances of one perturbation model over its whole range of strengths.

    Args:
        shape: horizon and vocabulary.
        batch: how many.
        model: what makes theta differ from roll.
        generator: decides everything, and the device.
    """
    peak = _log_uniform(*PEAKEDNESS, batch, generator)
    logits = peak[:, None, None] * torch.randn(
        batch,
        shape.contexts,
        shape.V,
        generator=generator,
        dtype=torch.float64,
        device=generator.device,
    )
    strength = _log_uniform(*model.range, batch, generator)
    log_roll, log_theta = model(logits, strength, generator=generator, shape=shape)
    half = batch // 2
    reward = torch.cat(
        [uniform(shape, half, generator), sparse_terminal(shape, batch - half, generator)]
    )
    return Instances(log_roll, log_theta, reward, strength, peak)
