"""How the policy that samples comes to differ from the policy that trains, one model a function.

Every model takes logits and gives the log-probs of both policies. Which side is perturbed follows
the physics: an engine's rounding or truncation changes *roll*, an optimiser's step changes *theta*.
Adding a model is one entry of :data:`PERTURBATIONS`; simulations and studies then have it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Final

import torch
from torch import Tensor

from bounds.errors import InputError
from simulations.contexts import TreeShape
from simulations.rounding import FORMATS, rounded_logits, rounded_weights
from simulations.staleness import STEPS, stale

#: ``(logits, strength, generator, shape) -> (log_roll, log_theta)``.
Model = Callable[[Tensor, Tensor, torch.Generator, TreeShape], tuple[Tensor, Tensor]]

#: Share of contexts whose gate is near a tie (mixture-of-experts flip).
_NEAR_TIE: Final = 0.2


@dataclass(frozen=True)
class Perturbation:
    """One source of off-policy mismatch.

    Attributes:
        name: how commands and tables call it.
        imitates: the physical source.
        strength: what the strength is, with its unit.
        range: strengths that :func:`simulations.instances.random_instances` draws from,
            log-uniformly.
        model: the function.
        supports_differ: whether one policy can give mass to a token that the other does not.
    """

    name: str
    imitates: str
    strength: str
    range: tuple[float, float]
    model: Model
    supports_differ: bool = False

    def __call__(
        self, logits: Tensor, strength: Tensor, *, generator: torch.Generator, shape: TreeShape
    ) -> tuple[Tensor, Tensor]:
        """Log-probs of both policies.

        Args:
            logits: float64 ``[B, C, V]``, finite.
            strength: float64 ``[B]``, nonnegative.
            generator: source of randomness, on the device of ``logits``.
            shape: layout of the contexts.

        Returns:
            ``(log_roll, log_theta)``, float64 ``[B, C, V]``, nats; ``-inf`` is a token cut off.

        Raises:
            InputError: shapes that do not fit, logits that are not finite, a negative strength.
        """
        if logits.ndim != 3 or tuple(logits.shape[1:]) != (shape.contexts, shape.V):
            raise InputError(
                f"logits have shape {tuple(logits.shape)}; T = {shape.T}, V = {shape.V} needs "
                f"[B, {shape.contexts}, {shape.V}]"
            )
        if not torch.isfinite(logits).all():
            b, c, v = (int(i) for i in (~torch.isfinite(logits)).nonzero()[0])
            raise InputError(
                f"logits, instance {b}, context {c}, token {v}: not finite; perturbation models "
                "start from policies with full support"
            )
        good = (strength >= 0) & torch.isfinite(strength)
        if strength.shape != logits.shape[:1] or not good.all():
            raise InputError(
                f"strength is {strength.tolist()[:5]}...; give one finite number >= 0 an instance"
            )
        roll, theta = self.model(logits, strength, generator, shape)
        return roll.log_softmax(-1), theta.log_softmax(-1)


def _normal(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=generator, dtype=like.dtype, device=like.device)


def _uniform(shape: tuple[int, ...], like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.rand(shape, generator=generator, dtype=like.dtype, device=like.device)


def _wide(strength: Tensor) -> Tensor:
    return strength[:, None, None]


def gaussian(
    logits: Tensor, strength: Tensor, generator: torch.Generator, shape: TreeShape
) -> tuple[Tensor, Tensor]:
    """Independent normal noise on theta's logits, standard deviation ``strength``."""
    return logits, logits + _wide(strength) * _normal(logits, generator)


def uniform(
    logits: Tensor, strength: Tensor, generator: torch.Generator, shape: TreeShape
) -> tuple[Tensor, Tensor]:
    """Independent noise on theta's logits, uniform within ``+-strength`` (DVP's bounded error)."""
    noise = 2 * _uniform(tuple(logits.shape), logits, generator) - 1
    return logits, logits + _wide(strength) * noise


def low_precision_logits(
    logits: Tensor, strength: Tensor, generator: torch.Generator, shape: TreeShape, form: str
) -> tuple[Tensor, Tensor]:
    """Roll's logits are rounded (:func:`~simulations.rounding.rounded_logits`), theta's exact."""
    return rounded_logits(logits, strength, generator, form), logits


def low_precision_weights(
    logits: Tensor, strength: Tensor, generator: torch.Generator, shape: TreeShape, form: str
) -> tuple[Tensor, Tensor]:
    """Roll's head is rounded, theta's is not (:func:`~simulations.rounding.rounded_weights`)."""
    return rounded_weights(logits, strength, generator, form), logits


def staleness(
    logits: Tensor, strength: Tensor, generator: torch.Generator, shape: TreeShape
) -> tuple[Tensor, Tensor]:
    """Theta is some policy-gradient steps ahead of roll (:func:`~simulations.staleness.stale`)."""
    return logits, stale(logits, strength, generator, shape)


def moe_flip(
    logits: Tensor, strength: Tensor, generator: torch.Generator, shape: TreeShape
) -> tuple[Tensor, Tensor]:
    """Two experts; at contexts whose gate is near a tie, roll and theta may take different ones.

    The gate margin is normal near a tie (a fifth of contexts) and large elsewhere; each side adds
    its own numerical noise to the margin and takes the expert of its sign. The second expert's
    logits lie ``strength`` (a standard deviation) from the first's.
    """
    other = logits + _wide(strength) * _normal(logits, generator)
    margin = _normal(logits[..., 0], generator)
    near = _uniform(tuple(margin.shape), logits, generator) < _NEAR_TIE
    margin = torch.where(near, margin, 10.0 * margin.sign())
    sides = []
    for _ in range(2):
        gate = margin + 0.5 * torch.where(near, _normal(margin, generator), 0.0)
        sides.append(torch.where((gate > 0)[..., None], logits, other))
    return sides[0], sides[1]


def temperature(
    logits: Tensor, strength: Tensor, generator: torch.Generator, shape: TreeShape
) -> tuple[Tensor, Tensor]:
    """Roll samples at temperature ``exp(+-strength)`` (sign drawn), theta is at 1."""
    sign = torch.where(_uniform(tuple(strength.shape), logits, generator) < 0.5, -1.0, 1.0)
    return logits * _wide((sign * strength).exp()), logits


def top_p(
    logits: Tensor, strength: Tensor, generator: torch.Generator, shape: TreeShape
) -> tuple[Tensor, Tensor]:
    """Roll samples from the nucleus: the fewest likeliest tokens of total mass ``1 - strength``."""
    ordered, index = logits.softmax(-1).sort(-1, descending=True)
    before = ordered.cumsum(-1) - ordered
    kept = torch.zeros_like(ordered, dtype=torch.bool)
    keep_ordered = before < 1 - _wide(strength)
    keep_ordered[..., 0] = True
    kept.scatter_(-1, index, keep_ordered)
    return logits.masked_fill(~kept, -torch.inf), logits


def min_p(
    logits: Tensor, strength: Tensor, generator: torch.Generator, shape: TreeShape
) -> tuple[Tensor, Tensor]:
    """Roll samples tokens with at least ``strength`` times the largest probability."""
    gap = logits - logits.amax(-1, keepdim=True)
    # strength 0 keeps all: exp(gap) > 0 may underflow, so compare probabilities
    kept = gap.exp() >= _wide(strength.clamp(max=1.0))
    return logits.masked_fill(~kept, -torch.inf), logits


def rare_context(
    logits: Tensor, strength: Tensor, generator: torch.Generator, shape: TreeShape
) -> tuple[Tensor, Tensor]:
    """The policies agree except after one first token, of probability ``strength``; there they
    prefer different tokens by 20 nats.

    The counterexample to any bound on the largest divergence from ``K_seq`` alone: ``K_seq`` goes
    to 0 with ``strength``, the divergence at that context does not. With ``T = 1`` there is no
    second context and the policies are equal.
    """
    batch = len(logits)
    logits = logits.clone()
    token = torch.randint(shape.V, (batch,), generator=generator, device=logits.device)
    rows = torch.arange(batch, device=logits.device)
    first = logits[:, 0].clone()
    first[rows, token] = -torch.inf
    share = strength.clamp(1e-300, 1 - 1e-9)
    first[rows, token] = first.logsumexp(-1) + share.log() - torch.log1p(-share)
    logits[:, 0] = first
    theta = logits.clone()
    if shape.T > 1:
        context = shape.level(1).start + token
        logits[rows, context, 0] += 10
        theta[rows, context, 1] += 10
    return logits, theta


def _rounding_entries() -> list[Perturbation]:
    entries = []
    for form in FORMATS:
        entries.append(
            Perturbation(
                f"{form}-logits",
                f"an engine that stores logits in {form}",
                "multiple of the rounding error (1 is the format itself)",
                (0.1, 3.0),
                partial(low_precision_logits, form=form),
            )
        )
        entries.append(
            Perturbation(
                f"{form}-weights",
                f"an engine whose output head is stored in {form}",
                "multiple of the rounding error (1 is the format itself)",
                (0.1, 3.0),
                partial(low_precision_weights, form=form),
            )
        )
    return entries


_ALL: tuple[Perturbation, ...] = (
    Perturbation(
        "gaussian",
        "the sum of many small numerical differences between two engines",
        "standard deviation of theta's logit noise, nats",
        (1e-5, 5.0),
        gaussian,
    ),
    Perturbation(
        "uniform",
        "a bounded logit error, as DVP's analysis assumes",
        "half-range E of theta's logit noise, nats",
        (1e-5, 5.0),
        uniform,
    ),
    *_rounding_entries(),
    Perturbation(
        "staleness",
        f"rollouts sampled {STEPS} optimiser steps ago",
        "step size of the exact policy gradient in the logits",
        (1e-3, 30.0),
        staleness,
    ),
    Perturbation(
        "moe-flip",
        "a mixture of experts whose router is near a tie and decides differently in two engines",
        "standard deviation between the experts' logits, nats",
        (1e-3, 5.0),
        moe_flip,
    ),
    Perturbation(
        "temperature",
        "an engine that samples at another temperature",
        "|log temperature|",
        (1e-4, 1.0),
        temperature,
    ),
    Perturbation(
        "top-p",
        "an engine that samples from the nucleus",
        "mass outside the nucleus, 1 - p",
        (1e-4, 0.5),
        top_p,
        supports_differ=True,
    ),
    Perturbation(
        "min-p",
        "an engine that samples with min-p",
        "min-p ratio",
        (1e-4, 0.5),
        min_p,
        supports_differ=True,
    ),
    Perturbation(
        "rare-context",
        "a context that is almost never visited, where the policies disagree",
        "probability of the context",
        (1e-8, 0.5),
        rare_context,
    ),
)

#: Every model by name.
PERTURBATIONS: Final[Mapping[str, Perturbation]] = MappingProxyType({p.name: p for p in _ALL})


def get(name: str) -> Perturbation:
    """The model called ``name``.

    Raises:
        InputError: there is none.
    """
    if name not in PERTURBATIONS:
        raise InputError(f"no perturbation is called {name!r}; known: {', '.join(PERTURBATIONS)}")
    return PERTURBATIONS[name]
