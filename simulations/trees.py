"""Exact ground truth on full autoregressive trees: the error, its worst case, every divergence.

A batch of independent (roll, theta, reward) triples is enumerated whole, in float64, level by
level. Three numbers travel from the root to each leaf: the probability ``P`` under roll, the
difference ``D = Q - P`` to the probability under theta, and the signed weight ``w`` with
``Error = sum over leaves of w R``. Each is a sum of products, never a difference of nearly equal
numbers: with ``d = theta - roll`` at a token,

    ``P' = P roll``,  ``D' = D theta + P d``,  ``w' = w roll + D d``.

Where roll has mass, ``w = P (prod rho - 1 - sum_t (rho_t - 1))``; the recursion also holds where
theta has mass and roll has none, with L' the sum over positions of ``E_roll[g_t]`` (theory of
TRM, arXiv 2512.23075, section 2).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any, Final

import torch
from torch import Tensor

from bounds.errors import InputError
from simulations.contexts import TreeShape
from simulations.tree_tokens import TokenLaws, token_laws

#: Largest distance of a row's total probability from 1.
_NORMALISED: Final = 1e-9
#: Leaf-sized float64 arrays alive at once in :func:`tree_quantities` (measured, with margin).
_LIVE: Final = 24
_FLOOR: Final = 1e-300
#: Leaves enumerated at once on a CPU: what stays in a core's cache.
_BLOCK: Final = 2**16

#: Divergences with a maximum over contexts.
MAXIMA: Final = ("kl", "tv", "chi2", "hel")
#: Divergences with a mean under roll contexts.
MEANS: Final = (*MAXIMA, "quartic")


@dataclass(frozen=True)
class TreeQuantities:
    """Everything the bounds speak of, exact in float64, for a batch of trees.

    Attributes:
        J_roll, J_theta: ``[B]`` expected reward (None without a reward).
        surrogate_gain: ``[B]`` L', the surrogate's predicted gain (None without a reward).
        error: ``[B]`` J(theta) - J(roll) - L', signed (None without a reward).
        oracle: ``[B]`` largest |error| over all rewards in [0, 1].
        tv_seq, kl_seq, hel_seq: ``[B]`` divergences of whole-trajectory laws.
        hel_cross: ``[B]`` see :data:`bounds.quantities.QUANTITIES`.
        kl_max_t, tv_max_t, chi2_max_t, hel_max_t: ``[B, T]`` maxima over the contexts that roll
            or theta reaches.
        kl_mean_t, tv_mean_t, chi2_mean_t, hel_mean_t, quartic_mean_t: ``[B, T]`` means under
            roll contexts.
    """

    oracle: Tensor
    tv_seq: Tensor
    kl_seq: Tensor
    hel_seq: Tensor
    hel_cross: Tensor
    kl_max_t: Tensor
    tv_max_t: Tensor
    chi2_max_t: Tensor
    hel_max_t: Tensor
    kl_mean_t: Tensor
    tv_mean_t: Tensor
    chi2_mean_t: Tensor
    hel_mean_t: Tensor
    quartic_mean_t: Tensor
    J_roll: Tensor | None = None
    J_theta: Tensor | None = None
    surrogate_gain: Tensor | None = None
    error: Tensor | None = None

    def inputs(self) -> dict[str, Tensor]:
        """What :func:`bounds.evaluate.evaluate` takes, by registry name."""
        names = ["tv_seq", "kl_seq", "hel_seq", "hel_cross"]
        names += [f"{kind}_max_t" for kind in MAXIMA] + [f"{kind}_mean_t" for kind in MEANS]
        return {name: getattr(self, name) for name in names}

    def __getitem__(self, index: Any) -> TreeQuantities:
        """The same quantities of part of the batch."""
        present: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        taken: dict[str, Any] = {k: None if v is None else v[index] for k, v in present.items()}
        return TreeQuantities(**taken)


@dataclass(frozen=True)
class LeafWeights:
    """Per-sequence weights of a batch of trees, each ``[B, V^T]``.

    Attributes:
        roll: probability under roll.
        theta: probability under theta.
        difference: theta - roll, without cancellation.
        excess: weights of the error: ``Error = sum of excess * R``.
    """

    roll: Tensor
    theta: Tensor
    difference: Tensor
    excess: Tensor


def tree_quantities(
    log_roll: Tensor,
    log_theta: Tensor,
    reward: Tensor | None = None,
    *,
    shape: TreeShape,
    validate: bool = True,
) -> TreeQuantities:
    """Exact quantities of a batch of trees, differentiable in both policies and the reward.

    Args:
        log_roll: float64 ``[B, C, V]`` log-probs of roll, nats, contexts laid out as in
            :mod:`simulations.contexts`; ``-inf`` is a token without mass.
        log_theta: the same for theta.
        reward: float64 ``[B, V^T]`` in [0, 1], one a whole sequence; None for the reward-free
            quantities only.
        shape: horizon and vocabulary.
        validate: check shapes, dtype, normalisation and the range of rewards.

    Raises:
        InputError: a wrong shape or dtype, NaN, rows that do not sum to 1, a reward outside [0, 1].

    A token that roll has and theta has not makes KL infinite; the reverse makes chi2 infinite;
    total variation and Hellinger stay finite.

    Source: definitions of TRM section 2 (arXiv 2512.23075); the recursion is ours.
    """
    if validate:
        check_policies(log_roll, log_theta, shape)
        if reward is not None:
            check_reward(reward, len(log_roll), shape)
    size = max(1, _BLOCK // shape.leaves)
    if len(log_roll) <= size or log_roll.device.type != "cpu":
        return _enumerate(log_roll, log_theta, reward, shape)
    starts = range(0, len(log_roll), size)
    return _joined(
        _enumerate(
            log_roll[i : i + size],
            log_theta[i : i + size],
            None if reward is None else reward[i : i + size],
            shape,
        )
        for i in starts
    )


def _joined(parts: Iterable[TreeQuantities]) -> TreeQuantities:
    held = list(parts)
    columns: dict[str, Any] = {}
    for f in fields(TreeQuantities):
        values = [getattr(part, f.name) for part in held]
        columns[f.name] = None if values[0] is None else torch.cat(values)
    return TreeQuantities(**columns)


def _enumerate(
    log_roll: Tensor, log_theta: Tensor, reward: Tensor | None, shape: TreeShape
) -> TreeQuantities:
    positions: list[dict[str, Tensor]] = []
    cross = torch.zeros(len(log_roll), dtype=log_roll.dtype, device=log_roll.device)
    weights = None
    for before, laws, after in _levels(log_roll, log_theta, shape):
        positions.append(_position(before, laws))
        cross = cross + (laws.hel * _root_gap(before)).sum(-1)
        weights = after
    assert weights is not None
    columns = {
        f"{name}_t": torch.stack([position[name] for position in positions], -1)
        for name in positions[0]
    }
    return TreeQuantities(
        oracle=0.5 * weights.excess.abs().sum(-1),
        tv_seq=0.5 * weights.difference.abs().sum(-1),
        kl_seq=columns["kl_mean_t"].sum(-1),
        hel_seq=_root_gap(weights).sum(-1),
        hel_cross=cross,
        **columns,
        **({} if reward is None else _returns(weights, reward)),
    )


def leaf_weights(log_roll: Tensor, log_theta: Tensor, *, shape: TreeShape) -> LeafWeights:
    """Per-sequence probabilities and error weights (see the module's docstring).

    Args:
        log_roll, log_theta: float64 ``[B, C, V]``, as in :func:`tree_quantities`.
        shape: horizon and vocabulary.

    Source: ours.
    """
    *_, (_, _, weights) = _levels(log_roll, log_theta, shape)
    return weights


def _levels(
    log_roll: Tensor, log_theta: Tensor, shape: TreeShape
) -> Iterator[tuple[LeafWeights, TokenLaws, LeafWeights]]:
    """Weights of the contexts of each level, their token laws, and the weights of the next."""
    one = torch.ones(len(log_roll), 1, dtype=log_roll.dtype, device=log_roll.device)
    at = LeafWeights(one, one, torch.zeros_like(one), torch.zeros_like(one))
    for t in range(shape.T):
        laws = token_laws(log_roll[:, shape.level(t)], log_theta[:, shape.level(t)])
        roll, gap = at.roll[..., None], at.difference[..., None]
        after = LeafWeights(
            (roll * laws.roll).flatten(1),
            (at.theta[..., None] * laws.theta).flatten(1),
            (gap * laws.theta + roll * laws.difference).flatten(1),
            (at.excess[..., None] * laws.roll + gap * laws.difference).flatten(1),
        )
        yield at, laws, after
        at = after


def _position(at: LeafWeights, laws: TokenLaws) -> dict[str, Tensor]:
    """Maxima over reached contexts and means under roll contexts, each ``[B]``."""
    reached = (at.roll > 0) | (at.theta > 0)
    visited = at.roll > 0
    found: dict[str, Tensor] = {}
    for kind in MEANS:
        values: Tensor = getattr(laws, kind)
        zero = torch.zeros_like(values)
        if kind in MAXIMA:
            found[f"{kind}_max"] = torch.where(reached, values, zero).amax(-1)
        # the zero is put in before the product too: 0 * inf has no derivative
        found[f"{kind}_mean"] = (at.roll * torch.where(visited, values, zero)).sum(-1)
    return found


def _root_gap(at: LeafWeights) -> Tensor:
    """``(sqrt(Q) - sqrt(P))^2`` at each node, without cancellation."""
    roots = at.theta.clamp(min=_FLOOR).sqrt() + at.roll.clamp(min=_FLOOR).sqrt()
    return (at.difference / roots).square()


def _returns(weights: LeafWeights, reward: Tensor) -> dict[str, Tensor]:
    J_roll = (weights.roll * reward).sum(-1)
    return {
        "J_roll": J_roll,
        "J_theta": J_roll + (weights.difference * reward).sum(-1),
        "surrogate_gain": ((weights.difference - weights.excess) * reward).sum(-1),
        "error": (weights.excess * reward).sum(-1),
    }


def check_policies(log_roll: Tensor, log_theta: Tensor, shape: TreeShape) -> None:
    """Refuse policies that are no batch of trees of ``shape``.

    Raises:
        InputError: wrong shape or dtype, NaN or +inf, rows whose probabilities do not sum to 1
            within 1e-9; says which policy, tree and context.
    """
    wanted = (shape.contexts, shape.V)
    for name, given in (("roll", log_roll), ("theta", log_theta)):
        if given.dtype != torch.float64:
            raise InputError(
                f"log_{name} is {given.dtype}; convert the logits with .double() and take "
                "log_softmax in float64"
            )
        if given.ndim != 3 or tuple(given.shape[1:]) != wanted or not len(given):
            raise InputError(
                f"log_{name} has shape {tuple(given.shape)}; T = {shape.T}, V = {shape.V} needs "
                f"[B, {wanted[0]}, {wanted[1]}] with B >= 1"
            )
        total = given.detach().exp().sum(-1)
        bad = ~((total - 1).abs() <= _NORMALISED)
        if bad.any():
            b, c = (int(i) for i in bad.nonzero()[0])
            raise InputError(
                f"log_{name}, tree {b}, context {c}: probabilities sum to {float(total[b, c]):.9g}"
                ", not 1; pass logits through log_softmax"
            )
    if len(log_roll) != len(log_theta):
        raise InputError(
            f"log_roll holds {len(log_roll)} trees and log_theta {len(log_theta)}; give as many"
        )


def check_reward(reward: Tensor, batch: int, shape: TreeShape) -> None:
    """Refuse a reward that is no float64 ``[B, V^T]`` in [0, 1].

    Raises:
        InputError: wrong shape or dtype, NaN, or a value outside [0, 1]; says which tree and leaf.
    """
    if tuple(reward.shape) != (batch, shape.leaves) or reward.dtype != torch.float64:
        raise InputError(
            f"reward is {reward.dtype} {tuple(reward.shape)}; give float64 [{batch}, "
            f"{shape.leaves}], one reward a whole sequence"
        )
    bad = ~((reward >= 0) & (reward <= 1))
    if bad.any():
        b, leaf = (int(i) for i in bad.nonzero()[0])
        raise InputError(
            f"reward, tree {b}, sequence {leaf}: {float(reward[b, leaf].detach()):g} is outside "
            "[0, 1]; rescale rewards, and say so beside the result"
        )


def tree_bytes(shape: TreeShape) -> int:
    """Upper bound on the memory one tree takes: its inputs and what is alive while it is summed."""
    return 8 * (2 * shape.contexts * shape.V + (1 + _LIVE) * shape.leaves)


def batch_size(shape: TreeShape, memory: float) -> int:
    """How many trees fit into ``memory`` bytes at once.

    Raises:
        InputError: not one does.
    """
    size = int(memory // tree_bytes(shape))
    if size < 1:
        raise InputError(
            f"one tree of T = {shape.T}, V = {shape.V} takes {tree_bytes(shape) / 2**20:.0f} MiB, "
            f"more than the {memory / 2**20:.0f} MiB allowed; raise --memory or take a smaller tree"
        )
    return size
