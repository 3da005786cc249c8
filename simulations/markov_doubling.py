r"""Block-triangular linear recursions over the states of an automaton: step by step, or doubled.

A *system* is a set of value functions ("nodes"), each ``[B, S, C]``, that step back together,

    ``z_i(s) <- c_i(s) + sum_j sum_e w_ij(s, e) z_j(next(s, e))``.

:func:`iterate` does ``T`` such steps in O(S E) memory. :func:`doubled` squares the affine map
instead, one matrix a block, in O(log T) steps and O(S^2) memory. Both add products only, in an
order that does not depend on the batch, so a batch gives the bits of its members one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

Values = dict[str, Tensor]
Blocks = dict[tuple[str, str], Tensor]
#: Matrix elements in one chunk of :func:`doubled`: what stays in a core's cache.
_BLOCK: Final = 2**13


@dataclass(frozen=True)
class Edges:
    """Transitions of an automaton.

    Attributes:
        next_state: int64 ``[B, S, E]``; None when edge ``e`` leads to state ``e``.
        states: ``S``.
    """

    next_state: Tensor | None
    states: int

    def follow(self, values: Tensor) -> Tensor:
        """``values`` ``[B, S, C]`` at the state each edge leads to, ``[B, S or 1, E, C]``."""
        if self.next_state is None:
            return values.unsqueeze(1)
        batch, states, edges = self.next_state.shape
        index = self.next_state.reshape(batch, -1, 1).expand(-1, -1, values.shape[-1])
        return values.gather(1, index).reshape(batch, states, edges, values.shape[-1])

    def matrix(self, weights: Tensor) -> Tensor:
        """Sums of ``weights`` ``[B, S, E]`` by target, ``[B, S, S]``."""
        if self.next_state is None:
            return weights
        zeros = weights.new_zeros((*weights.shape[:2], self.states))
        return zeros.scatter_add(2, self.next_state, weights)

    def largest(self, weights: Tensor) -> Tensor:
        """Largest of ``weights`` ``[B, S, E]`` by target, ``[B, S, S]``; ``-inf`` for no edge."""
        if self.next_state is None:
            return weights
        floor = weights.new_full((*weights.shape[:2], self.states), -torch.inf)
        return floor.scatter_reduce(2, self.next_state, weights, "amax")


@dataclass(frozen=True)
class System:
    """An affine recursion (see the module's docstring).

    Attributes:
        edges: where each edge leads.
        blocks: ``(i, j)`` -> ``w_ij`` ``[B, S, E]``; ``z_j`` must have ``z_i``'s columns.
        constants: ``i`` -> ``c_i`` ``[B, S, C_i]``; one entry a node.
    """

    edges: Edges
    blocks: Blocks
    constants: Values

    def merged(self) -> System:
        """The same system with the edges that lead to the same state added up."""
        held: dict[int, Tensor] = {}
        blocks = {at: held.setdefault(id(w), self.edges.matrix(w)) for at, w in self.blocks.items()}
        return System(Edges(None, self.edges.states), blocks, self.constants)

    def step(self, values: Values) -> Values:
        """One step back in time."""
        ahead = {name: self.edges.follow(value) for name, value in values.items()}
        result = dict(self.constants)
        for (i, j), weights in self.blocks.items():
            result[i] = result[i] + (weights.unsqueeze(-1) * ahead[j]).sum(2)
        return result


def iterate(
    system: System, start: Values, T: int, watch: Callable[[int, Values], None] | None = None
) -> Values:
    """``z_T`` by ``T`` steps from ``z_0 = start``.

    Args:
        system: the recursion.
        start: node -> float64 ``[B, S, C]``.
        T: steps.
        watch: called with ``(k, z_k)`` for ``k = 1..T``.
    """
    values = start
    for k in range(1, T + 1):
        values = system.step(values)
        if watch is not None:
            watch(k, values)
    return values


def doubled(system: System, start: Values, T: int) -> Values:
    """``z_T`` by squaring the step's affine map, ``log2 T`` times; agrees with :func:`iterate`.

    Args:
        system: the recursion; needs O(S^2) memory a block and member.
        start: node -> float64 ``[B, S, C]``.
        T: steps.

    Source: ours. Blocks that are the same tensor (all the diagonals under one policy) are squared
    once.
    """
    batch, states = next(iter(start.values())).shape[:2]
    size = max(1, _BLOCK // (states * states))
    matrices = system.merged()
    parts = [
        _doubled(_rows(matrices.blocks, rows), _rows(system.constants, rows), _rows(start, rows), T)
        for rows in (slice(i, i + size) for i in range(0, batch, size))
    ]
    return {name: torch.cat([part[name] for part in parts], -1).movedim(-1, 0) for name in parts[0]}


def _rows(tensors: Mapping, rows: slice) -> dict:
    """Part of the batch, which becomes the last axis; equal tensors stay the same object."""
    held: dict[int, Tensor] = {}
    return {
        at: held.setdefault(id(value), value[rows].movedim(0, -1).contiguous())
        for at, value in tensors.items()
    }


def _doubled(blocks: Blocks, total: Values, start: Values, T: int) -> Values:
    values = start
    while True:
        if T & 1:
            values = _apply(blocks, values, total)
        T >>= 1
        if not T:
            return values
        total = _apply(blocks, total, total)
        blocks = _square(blocks)


def _apply(blocks: Blocks, values: Values, added: Values) -> Values:
    result = dict(added)
    for (i, j), matrix in blocks.items():
        result[i] = result[i] + product(matrix, values[j])
    return result


def _square(blocks: Blocks) -> Blocks:
    made: dict[tuple[int, int], Tensor] = {}
    result: Blocks = {}
    for i, j, left, right in _paths(blocks):
        key = (id(left), id(right))
        if key not in made:
            made[key] = product(left, right)
        result[i, j] = result[i, j] + made[key] if (i, j) in result else made[key]
    return result


def _paths(blocks: Blocks) -> Iterator[tuple[str, str, Tensor, Tensor]]:
    for (i, k), left in blocks.items():
        for (m, j), right in blocks.items():
            if k == m:
                yield i, j, left, right


def product(left: Tensor, right: Tensor) -> Tensor:
    """Matrix product ``[S, K, B]`` by ``[K, C, B]``, the batch last, terms added in order."""
    result = left[:, 0, None] * right[None, 0]
    for k in range(1, left.shape[1]):
        result += left[:, k, None] * right[None, k]
    return result


def highest_total(edges: Edges, gain: Tensor, final: Tensor, T: int, *, double: bool) -> Tensor:
    """Largest total of ``gain`` over ``T`` edges plus ``final``, from each state.

    Args:
        edges: where each edge leads.
        gain: float64 ``[B, S, E]``; ``-inf`` forbids an edge.
        final: float64 ``[B, S]``, added at the last state.
        T: number of edges.
        double: square the (max, +) matrix, O(log T) steps, in place of ``T`` steps.

    Returns:
        float64 ``[B, S]``.
    """
    if not double:
        for _ in range(T):
            final = (gain + edges.follow(final.unsqueeze(-1)).squeeze(-1)).amax(-1)
        return final
    matrix = edges.largest(gain)
    while True:
        if T & 1:
            final = (matrix + final.unsqueeze(1)).amax(-1)
        T >>= 1
        if not T:
            return final
        square = matrix[:, :, 0, None] + matrix[:, None, 0]
        for k in range(1, matrix.shape[1]):
            square = torch.maximum(square, matrix[:, :, k, None] + matrix[:, None, k])
        matrix = square
