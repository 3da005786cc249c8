"""The registry: every bound is one :class:`Bound`, and everything else is generated from it.

Entries live in ``bounds/catalog/``, one theorem a file, and are found by import: a new file (or a
new entry in a file's ``ENTRIES``) is all it takes for ``evaluate``, ``sweep``, ``audit``,
``derive``, the LaTeX and the README's table to have it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Literal

import sympy as sp

from bounds.quantities import BY_SYMBOL, QUANTITIES, Quantity

if TYPE_CHECKING:
    from bounds.proof import Proof

Owner = Literal["paper", "ours"]
Role = Literal["bound", "oracle", "minimum"]
Form = Literal["full", "small", "sharp", "position-wise"]

TRM = "Li et al., Trust Region Masking for Long-Horizon LLM RL (arXiv 2512.23075)"
OURS = "ours (trust-bounds)"


@dataclass(frozen=True)
class Bound:
    """One bound on ``|Error| = |J(theta) - J(roll) - L'|`` for rewards in [0, 1].

    Attributes:
        name: registry key, kebab-case (``pinsker-marginal-kl``).
        title: how a person calls it.
        expression: sympy expression in the symbols of :mod:`bounds.quantities`.
        owner: ``"paper"`` or ``"ours"``.
        source: paper, section or theorem; or "ours" with what it sharpens.
        form: full form, small-divergence form, range-constant or position-wise version.
        assumptions: what must hold for the bound, in words.
        kl_direction: direction of every KL that enters.
        role: an upper bound, the reward-free Oracle itself, or a minimum over other entries.
        members: for ``role="minimum"``, names over which the minimum runs.
        proof: builds the machine-checkable derivation of ``expression``.
        aliases: other accepted names.
    """

    name: str
    title: str
    expression: sp.Expr
    owner: Owner
    source: str
    form: Form = "full"
    assumptions: tuple[str, ...] = ()
    kl_direction: str = "KL(roll || theta)"
    role: Role = "bound"
    members: tuple[str, ...] = ()
    proof: Callable[[Bound], Proof] | None = field(default=None, repr=False, compare=False)
    aliases: tuple[str, ...] = ()

    @property
    def inputs(self) -> tuple[Quantity, ...]:
        """Quantities the expression needs, in canonical order (read off the expression)."""
        return _inputs(self.expression)

    @property
    def latex(self) -> str:
        """The expression as LaTeX."""
        from bounds.latex import to_latex

        return to_latex(self.expression)


@cache
def _inputs(expression: sp.Expr) -> tuple[Quantity, ...]:
    names = {BY_SYMBOL[a].name for a in expression.free_symbols if a in BY_SYMBOL}
    return tuple(quantity for name, quantity in QUANTITIES.items() if name in names)


@cache
def _load() -> dict[str, Bound]:
    import bounds.catalog as catalog

    rank = {name: i for i, name in enumerate(catalog.MODULES)}
    modules = sorted(
        (info.name for info in pkgutil.iter_modules(catalog.__path__)),
        key=lambda name: (rank.get(name, len(rank)), name),
    )
    found: list[Bound] = []
    for name in modules:
        found.extend(importlib.import_module(f"bounds.catalog.{name}").ENTRIES)
    found.extend(catalog.minima(tuple(found)))
    registry: dict[str, Bound] = {}
    for entry in found:
        if entry.name in registry:
            raise ValueError(f"bound {entry.name!r} is registered twice; rename one entry")
        registry[entry.name] = entry
    return registry


def names() -> tuple[str, ...]:
    """All registered names, in display order."""
    return tuple(_load())


def all_bounds() -> Iterator[Bound]:
    """Every registered bound, in display order."""
    yield from _load().values()


def get(name: str) -> Bound:
    """The bound called ``name`` (or one of its aliases).

    Raises:
        KeyError: no such bound; the message lists the nearest names.
    """
    registry = _load()
    if name in registry:
        return registry[name]
    for entry in registry.values():
        if name in entry.aliases:
            return entry
    import difflib

    near = difflib.get_close_matches(name, list(registry), n=3, cutoff=0.3) or list(registry)[:3]
    raise KeyError(f"no bound is called {name!r}; did you mean {', '.join(near)}?")
