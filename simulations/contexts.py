"""Layout of the contexts of a full autoregressive tree: one axis, level after level.

A tree of horizon ``T`` over a vocabulary of ``V`` tokens has ``V^t`` contexts before token
``t + 1`` (``t = 0..T-1``), so ``C = (V^T - 1)/(V - 1)`` in all. Policies are arrays ``[B, C, V]``
whose context axis lists level 0 (the empty context), then level 1 in lexicographic order of its
token, and so on. The context that follows context ``c`` of a level by token ``y`` is number
``c V + y`` of the next level; leaves are numbered ``0..V^T - 1`` in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass

from bounds.errors import InputError


@dataclass(frozen=True)
class TreeShape:
    """Horizon and vocabulary of a full tree.

    Attributes:
        T: horizon, in tokens (at least 1).
        V: vocabulary size (at least 2).

    Raises:
        InputError: ``T < 1`` or ``V < 2``.
    """

    T: int
    V: int

    def __post_init__(self) -> None:
        if self.T < 1 or self.V < 2:
            raise InputError(
                f"a tree needs T >= 1 and V >= 2, got T = {self.T}, V = {self.V}; raise them"
            )

    @property
    def leaves(self) -> int:
        """Number of whole sequences, ``V^T``."""
        return self.V**self.T

    @property
    def contexts(self) -> int:
        """Number of contexts, ``(V^T - 1)/(V - 1)``."""
        return (self.leaves - 1) // (self.V - 1)

    def level(self, t: int) -> slice:
        """Where the contexts with ``t`` tokens (``t = 0..T-1``) lie on the context axis."""
        start = (self.V**t - 1) // (self.V - 1)
        return slice(start, start + self.V**t)
