"""Evaluate registered bounds: fill in derivable inputs, say where each came from, compare.

The result of :func:`evaluate` is a frozen table that prints well. Its statuses are honest: a value
whose inputs were given, or follow from given ones by a theorem, is a *bound*; one that rests on a
small-divergence expansion is an *approximation* and is never counted as a guarantee.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal

import array_api_compat
import numpy as np

from bounds import registry
from bounds.compile import Positions, evaluate_expression, evaluate_positions
from bounds.errors import InputError
from bounds.quantities import QUANTITIES
from bounds.registry import Bound
from bounds.rules import Rule, schedule
from bounds.special import Array
from bounds.validate import check

Status = Literal["given", "derived", "approximation", "missing"]
_RANK: dict[Status, int] = {"given": 0, "derived": 1, "approximation": 2, "missing": 3}

#: Rewards are in [0, 1]; a bound above its range says nothing a user did not know.
REWARD_RANGE = 1.0
#: Values this close (relative) are the same number in another rounding.
_TIE = 1e-12


@dataclass(frozen=True)
class Provenance:
    """Where an input's value came from.

    Attributes:
        status: given, derived by theorems, approximated, or missing.
        lemmas: what led from given inputs to this one, in order; the last is the rule itself.
        expansion: the small-divergence expansion that an approximation rests on.
    """

    status: Status
    lemmas: tuple[str, ...] = ()
    expansion: str = ""

    def __str__(self) -> str:
        if self.expansion:
            return f"approximation: {self.expansion}"
        return self.lemmas[-1] if self.lemmas else self.status


@dataclass(frozen=True)
class Resolved:
    """Given inputs with everything that follows from them.

    Attributes:
        values: quantity name -> float64 array or :class:`~bounds.compile.Positions`.
        provenance: quantity name -> :class:`Provenance`.
    """

    values: Mapping[str, Array | Positions]
    provenance: Mapping[str, Provenance]

    def status_of(self, bound: Bound) -> Status:
        """The weakest status among the inputs of ``bound``."""
        statuses = [self.of(quantity.name).status for quantity in bound.inputs]
        return max(statuses, key=lambda status: _RANK[status])

    def of(self, name: str) -> Provenance:
        """Provenance of one quantity (``missing`` when there is none)."""
        return self.provenance.get(name, Provenance("missing"))


@dataclass(frozen=True)
class BoundValue:
    """One bound at the given inputs.

    Attributes:
        bound: the registry entry.
        value: float64 array of the inputs' broadcast shape (reward units), or None when missing.
        status: weakest status among its inputs.
        inputs: quantity name -> provenance.
        holds_for: for a minimum, the members it was taken over.
    """

    bound: Bound
    value: Any
    status: Status
    inputs: Mapping[str, Provenance]
    holds_for: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Registry name."""
        return self.bound.name

    @property
    def certified(self) -> bool:
        """Whether the value is a bound given that the inputs are right."""
        return self.status in ("given", "derived")

    @property
    def vacuous(self) -> Any:
        """Whether the value exceeds the reward range; None when the value is missing."""
        return None if self.value is None else self.value > REWARD_RANGE


@dataclass(frozen=True)
class Evaluation:
    """Values of a set of bounds at one (possibly array-valued) set of inputs."""

    resolved: Resolved
    bounds: tuple[BoundValue, ...]

    def __getitem__(self, name: str) -> BoundValue:
        wanted = registry.get(name).name
        for entry in self.bounds:
            if entry.name == wanted:
                return entry
        raise KeyError(f"{name} was not evaluated")

    def __iter__(self) -> Iterator[BoundValue]:
        return iter(self.bounds)

    @property
    def smallest(self) -> BoundValue | None:
        """The least certified bound (scalar evaluations only), minima left out."""
        candidates = [
            entry
            for entry in self.bounds
            if entry.certified and entry.value is not None and entry.bound.role == "bound"
        ]
        if not candidates or any(np.ndim(entry.value) for entry in candidates):
            return None
        least = min(float(entry.value) for entry in candidates)
        ties = [e for e in candidates if float(e.value) <= least * (1 + _TIE)]
        return min(ties, key=lambda entry: (_RANK[entry.status], entry.bound.form == "small"))

    def __str__(self) -> str:
        lines = []
        best = self.smallest
        for entry in self.bounds:
            shown = "-" if entry.value is None else _short(entry.value)
            mark = "*" if best is not None and entry.name == best.name else " "
            lines.append(f"{mark} {entry.name:38s} {shown:>14s}  {entry.status}")
        return "\n".join(lines)


def _short(value: Array) -> str:
    array = np.asarray(value)
    return f"{float(array):.6g}" if array.ndim == 0 else f"array{array.shape}"


def _as_input(name: str, value: Any, xp: Any, device: Any) -> Array | Positions:
    quantity = QUANTITIES[name]
    try:
        array = (
            xp.astype(value, xp.float64)
            if array_api_compat.is_array_api_obj(value)
            else xp.asarray(value, dtype=xp.float64, device=device)
        )
    except (TypeError, ValueError) as error:
        raise InputError(f"{quantity.option} ({name}) is not numeric: {value!r}") from error
    if not quantity.per_position:
        return array
    return Positions(array, constant=array.ndim == 0)


def as_inputs(given: Mapping[str, Any]) -> dict[str, Array | Positions]:
    """Float64 arrays from user values; numpy unless a torch tensor is among them.

    A per-position quantity given as a scalar bounds every position.

    Raises:
        InputError: an unknown quantity, or a value that is not numeric.
    """
    for name in given:
        if name not in QUANTITIES:
            raise InputError(f"no quantity is called {name!r}; known: {', '.join(QUANTITIES)}")
    present = {name: value for name, value in given.items() if value is not None}
    arrays = [v for v in present.values() if array_api_compat.is_array_api_obj(v)]
    torch_arrays = [v for v in arrays if array_api_compat.is_torch_array(v)]
    reference = torch_arrays[0] if torch_arrays else np.zeros(())
    xp = array_api_compat.array_namespace(reference)
    device = array_api_compat.device(reference)
    return {
        name: _as_input(
            name,
            value
            if not torch_arrays or array_api_compat.is_torch_array(value)
            else np.asarray(value).tolist(),
            xp,
            device,
        )
        for name, value in present.items()
    }


def _apply(rule: Rule, values: Mapping[str, Array | Positions]) -> Array | Positions:
    """The rule's value at ``values`` (which hold all of its sources)."""
    sources = {name: values[name] for name in rule.sources}
    first = next(iter(sources.values()))
    xp = array_api_compat.array_namespace(first.values if isinstance(first, Positions) else first)
    if rule.reduce == "max":
        assert isinstance(first, Positions)
        return first.values if first.constant else xp.max(first.values, axis=-1)
    if QUANTITIES[rule.target].per_position:
        return evaluate_positions(rule.expression, sources)
    return evaluate_expression(rule.expression, sources)


def _least(one: Array | Positions, two: Array | Positions) -> Array | Positions:
    """Elementwise minimum of two upper estimates of one quantity."""
    if isinstance(one, Positions) and isinstance(two, Positions):
        if one.constant == two.constant:
            left, right = one.values, two.values
        else:
            left = one.values[..., None] if one.constant else one.values
            right = two.values[..., None] if two.constant else two.values
        xp = array_api_compat.array_namespace(left)
        return Positions(
            xp.minimum(*xp.broadcast_arrays(left, right)), one.constant and two.constant
        )
    xp = array_api_compat.array_namespace(one)
    return xp.minimum(*xp.broadcast_arrays(one, two))


def resolve(given: Mapping[str, Any], *, validate: bool = True) -> Resolved:
    """Complete the given quantities by the rules of :mod:`bounds.rules`.

    Theorems come first: where several supply the same quantity, the least value is taken. An
    approximation is used only for what no theorem supplies.

    Args:
        given: quantity name -> number, array or tensor; None counts as not given.
        validate: check ranges and mutual consistency.

    Raises:
        InputError: unknown, illegal or contradictory input.
    """
    values = as_inputs(given)
    for value in values.values():
        if isinstance(value, Positions) and not value.constant and "T" not in values:
            xp = array_api_compat.array_namespace(value.values)
            values["T"] = xp.asarray(
                float(value.values.shape[-1]),
                dtype=xp.float64,
                device=array_api_compat.device(value.values),
            )
            break
    if validate:
        check(values)
    provenance: dict[str, Provenance] = {name: Provenance("given") for name in values}
    for target, rules in schedule(values):
        candidates = [_apply(rule, values) for rule in rules]
        values[target] = reduce(_least, candidates)
        provenance[target] = _provenance_of(_binding(rules, candidates), provenance)
    return Resolved(values, provenance)


def _binding(rules: list[Rule], candidates: list[Array | Positions]) -> list[Rule]:
    """The rules that supply the least value: one when all are numbers, else every one."""
    arrays = [c.values if isinstance(c, Positions) else c for c in candidates]
    if any(array.ndim for array in arrays):
        return rules
    return [rules[min(range(len(rules)), key=lambda i: float(arrays[i]))]]


def _provenance_of(rules: list[Rule], provenance: Mapping[str, Provenance]) -> Provenance:
    statuses: list[Status] = [rule.kind for rule in rules]
    statuses += [provenance[source].status for rule in rules for source in rule.sources]
    lemmas: list[str] = []
    for rule in rules:
        for source in rule.sources:
            lemmas.extend(provenance[source].lemmas)
        lemmas.append(rule.lemma)
    worst = max(statuses, key=lambda status: _RANK[status])
    expansions = [rule.lemma for rule in rules if rule.kind == "approximation"]
    expansions += [provenance[source].expansion for rule in rules for source in rule.sources]
    return Provenance(
        "derived" if worst == "given" else worst,
        tuple(dict.fromkeys(lemmas)),
        next((expansion for expansion in expansions if expansion), ""),
    )


def evaluate(
    bounds: Iterable[str] | None = None, *, validate: bool = True, **given: Any
) -> Evaluation:
    """Evaluate bounds at the given quantities.

    Args:
        bounds: registry names; all when None.
        validate: check ranges and mutual consistency of the given quantities.
        **given: quantities by name (``T``, ``kl_max``, ``kl_seq``, ...; see
            :data:`bounds.quantities.QUANTITIES`). Numbers, numpy arrays or torch tensors; scalars
            broadcast; per-position quantities have the position as last axis.

    Returns:
        A frozen :class:`Evaluation` with one :class:`BoundValue` a bound, float64.

    Raises:
        InputError: unknown, illegal or contradictory input.
        KeyError: unknown bound.
    """
    wanted = (
        [registry.get(name) for name in bounds]
        if bounds is not None
        else list(registry.all_bounds())
    )
    resolved = resolve(given, validate=validate)
    return Evaluation(resolved, evaluate_resolved(wanted, resolved))


def evaluate_resolved(wanted: Iterable[Bound], resolved: Resolved) -> tuple[BoundValue, ...]:
    """Evaluate registry entries at already resolved inputs, each entry once."""
    wanted = list(wanted)
    members = [registry.get(name) for entry in wanted for name in entry.members]
    computed: dict[str, BoundValue] = {}
    for entry in [*wanted, *members]:
        if entry.role != "minimum" and entry.name not in computed:
            computed[entry.name] = _single(entry, resolved)
    results = []
    for entry in wanted:
        if entry.role == "minimum":
            results.append(_minimum(entry, [computed[name] for name in entry.members]))
        else:
            results.append(computed[entry.name])
    return tuple(results)


def _single(entry: Bound, resolved: Resolved) -> BoundValue:
    inputs = {quantity.name: resolved.of(quantity.name) for quantity in entry.inputs}
    status = resolved.status_of(entry)
    if status == "missing":
        return BoundValue(entry, None, status, inputs)
    needed = {name: resolved.values[name] for name in inputs}
    value = evaluate_expression(entry.expression, needed)
    xp = array_api_compat.array_namespace(value)
    if entry.role == "bound":
        # 0 * inf: one factor says nothing, so neither does the product
        value = xp.where(xp.isnan(value), xp.full_like(value, float("inf")), value)
    return BoundValue(entry, value, status, inputs)


def _minimum(entry: Bound, members: list[BoundValue]) -> BoundValue:
    usable = [member for member in members if member.certified and member.value is not None]
    inputs = {name: provenance for member in usable for name, provenance in member.inputs.items()}
    if not usable:
        return BoundValue(entry, None, "missing", {})
    value = usable[0].value
    for member in usable[1:]:
        value = _least(value, member.value)
    statuses = [member.status for member in usable]
    return BoundValue(
        entry,
        value,
        max(statuses, key=lambda status: _RANK[status]),
        inputs,
        tuple(member.name for member in usable),
    )
