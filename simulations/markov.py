r"""Exact error and divergences of Markov MDPs at any horizon, by dynamic programming.

The context is summarised by the state of an automaton that reads the tokens. Every value below is
a backward recursion over states: O(S A) memory whatever the horizon, ``T`` steps or, for few
states, ``log2 T`` squarings. With ``p, q`` the token laws of roll and theta, ``d = q - p`` and a
prime for the value at the next state one step ahead, the recursions never subtract nearly equal
numbers:

    V = sum p (r + V'),   J_theta - J_roll:  D = sum d (r + V') + sum q D',
    L':  U = sum d (r + V') + sum p U',   Error:  E = sum d D' + sum p E',
    H_seq = 2 G,  G = h/2 + sum sqrt(p q) G'.

``H_cross`` and ``E W^2`` are expectations of a quadratic in ``sqrt M - 1`` and ``M - 1`` (``M`` the
product of the ratios so far), whose three coefficients recurse in the same way. The sequence's
total variation and the reward-free Oracle are not functions of such sums: they get rigorous
brackets here, and confidence intervals by :mod:`simulations.markov_mc`.

Source: definitions of TRM section 2 (arXiv 2512.23075); the recursions are ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Literal

import torch
from torch import Tensor

from bounds.errors import InputError
from simulations.markov_doubling import Blocks, Edges, System, doubled, highest_total, iterate
from simulations.tree_tokens import TokenLaws, token_laws

Method = Literal["auto", "loop", "doubling"]
MAXIMA: Final = ("kl", "tv", "chi2", "hel")
MEANS: Final = (*MAXIMA, "quartic")
#: Largest distance of a row's total probability from 1, and of a total reward from [0, 1].
_SLACK: Final = 1e-9
#: Tokens (members x states x tokens) whose arrays are alive at once.
_BLOCK: Final = 2**20
#: Above this many states a matrix is larger than the memory that is promised.
_DENSE_STATES: Final = 64


@dataclass(frozen=True)
class MarkovQuantities:
    """Exact quantities of a batch of Markov MDPs, float64.

    Attributes:
        T: ``[B]`` horizon, tokens.
        kl_max, tv_max, chi2_max, hel_max: ``[B]`` largest over the states that roll or theta
            reaches before its last token.
        kl_seq: ``[B]`` KL(roll || theta) of whole trajectories, nats.
        tv_mean, chi2_mean, hel_mean, quartic_mean: ``[B]`` means over positions, under roll.
        hel_seq, hel_cross: ``[B]`` as in :data:`bounds.quantities.QUANTITIES`.
        tv_seq_low, tv_seq_high: ``[B]`` rigorous bracket of the trajectories' total variation
            (from Hellinger, Pinsker and coupling).
        oracle_high: ``[B]`` 1/2 sqrt(E W^2), an *upper bound* on the Oracle; ``inf`` when it
            overflows, or where a state that roll reaches has infinite chi2.
        J_roll, J_theta, surrogate_gain, error: ``[B]``, signed; None without a reward.
        kl_max_t .. quartic_mean_t: ``[B, T]``, on request only.
    """

    T: Tensor
    kl_max: Tensor
    tv_max: Tensor
    chi2_max: Tensor
    hel_max: Tensor
    kl_seq: Tensor
    tv_mean: Tensor
    chi2_mean: Tensor
    hel_mean: Tensor
    quartic_mean: Tensor
    hel_seq: Tensor
    hel_cross: Tensor
    tv_seq_low: Tensor
    tv_seq_high: Tensor
    oracle_high: Tensor
    J_roll: Tensor | None = None
    J_theta: Tensor | None = None
    surrogate_gain: Tensor | None = None
    error: Tensor | None = None
    kl_max_t: Tensor | None = None
    tv_max_t: Tensor | None = None
    chi2_max_t: Tensor | None = None
    hel_max_t: Tensor | None = None
    kl_mean_t: Tensor | None = None
    tv_mean_t: Tensor | None = None
    chi2_mean_t: Tensor | None = None
    hel_mean_t: Tensor | None = None
    quartic_mean_t: Tensor | None = None

    def inputs(self) -> dict[str, Tensor]:
        """What :func:`bounds.evaluate.evaluate` takes, by registry name.

        ``tv_seq`` is the bracket's upper end: every bound grows with it, so each stays a bound.
        """
        names = [f"{kind}_max" for kind in MAXIMA]
        names += ["T", "kl_seq", "chi2_mean", "hel_mean", "quartic_mean", "hel_seq", "hel_cross"]
        names += [f"{kind}_max_t" for kind in MAXIMA] + [f"{kind}_mean_t" for kind in MEANS]
        given = {name: getattr(self, name) for name in names}
        given["tv_seq"] = self.tv_seq_high
        return {name: value for name, value in given.items() if value is not None}

    def __getitem__(self, index: Any) -> MarkovQuantities:
        """The same quantities of part of the batch."""
        held: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        part: dict[str, Any] = {k: None if v is None else v[index] for k, v in held.items()}
        return replace(self, **part)


@dataclass(frozen=True)
class _Problem:
    """Checked input of one chunk; ``start`` is the law of the first state, ``[B, S]``."""

    log_roll: Tensor
    log_theta: Tensor
    next_state: Tensor
    start: Tensor
    reward: Tensor | None
    terminal: Tensor | None
    T: int

    def __getitem__(self, rows: slice) -> _Problem:
        held: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        rowwise: dict[str, Any] = {k: v[rows] for k, v in held.items() if isinstance(v, Tensor)}
        return replace(self, **rowwise)


def markov_quantities(
    log_roll: Tensor,
    log_theta: Tensor,
    next_state: Tensor,
    *,
    T: int,
    start: Tensor | None = None,
    reward: Tensor | None = None,
    terminal: Tensor | None = None,
    per_position: bool = False,
    method: Method = "auto",
    validate: bool = True,
) -> MarkovQuantities:
    """Exact quantities of a batch of Markov MDPs.

    Args:
        log_roll: float64 ``[B, S, A]`` log-probs of roll, nats; ``-inf`` is a token without mass.
        log_theta: the same for theta.
        next_state: int64 ``[B, S, A]``, the state after each token.
        T: horizon, tokens. An absorbing state in which both policies agree pads shorter sequences.
        start: int64 ``[B]`` first states, or float64 ``[B, S]`` their law (that of the prompts);
            state 0 when None.
        reward: float64 ``[B, S, A]``, earned by each token.
        terminal: float64 ``[B, S]``, earned at the state after the last token. The *total*, the sum
            of ``reward`` plus ``terminal``, must lie in [0, 1] on every sequence that roll or theta
            can emit; without either, only reward-free quantities are given.
        per_position: also give the ``[B, T]`` arrays. Takes ``T`` steps and O(T) memory.
        method: ``"loop"`` (``T`` steps, O(S A) memory), ``"doubling"`` (``log2 T`` squarings of
            matrices, O(S^2) memory) or the cheaper of the two.
        validate: check shapes, dtype, normalisation, the targets and the range of the total.

    Raises:
        InputError: as above, or an unknown method.

    A batch gives to the bit what its members give one by one, on CPU.

    Source: definitions of TRM section 2 (arXiv 2512.23075); the recursions are ours.
    """
    given = (log_roll, log_theta, next_state, start, reward, terminal)
    problem = prepare(*given, T=T, validate=validate)
    batch, states, tokens = log_roll.shape
    if method not in ("auto", "loop", "doubling"):
        raise InputError(f"method is {method!r}; give auto, loop or doubling")
    if per_position and method == "doubling":
        raise InputError("method is doubling, which has no per-position values; give loop or auto")
    double = method == "doubling" or (
        method == "auto" and not per_position and _doubling_pays(states, tokens, T)
    )
    if validate:
        check_reward_range(problem, double=_doubling_pays(states, tokens, T))
    size = max(1, _BLOCK // (states * tokens))
    parts = [_solve(problem[i : i + size], per_position, double) for i in range(0, batch, size)]
    if len(parts) == 1:
        return parts[0]
    names = [f.name for f in fields(MarkovQuantities)]
    columns: dict[str, Any] = {
        name: None
        if getattr(parts[0], name) is None
        else torch.cat([getattr(part, name) for part in parts])
        for name in names
    }
    return MarkovQuantities(**columns)


def _doubling_pays(states: int, tokens: int, T: int) -> bool:
    if states > _DENSE_STATES:
        return False
    return T * min(states, tokens) > 2 * states * states * T.bit_length()


def _solve(problem: _Problem, per_position: bool, double: bool) -> MarkovQuantities:
    laws = token_laws(problem.log_roll, problem.log_theta)
    edges = Edges(problem.next_state, problem.log_roll.shape[1])
    under_roll = reachable(problem.start > 0, laws.roll > 0, problem.next_state, problem.T)
    under_theta = reachable(problem.start > 0, laws.theta > 0, problem.next_state, problem.T)
    seen = under_roll | under_theta
    laws = _kept(laws, seen)
    system = _system(problem, laws, edges)
    merged = system.merged() if problem.log_roll.shape[1] <= problem.log_roll.shape[2] else system
    final = {name: torch.zeros_like(value) for name, value in system.constants.items()}
    if problem.terminal is not None and "V" in final:
        final["V"] = problem.terminal.unsqueeze(-1)
    positions: dict[str, Tensor] = {}
    if per_position:
        positions = _per_position(problem, laws, edges)
    values = doubled(merged, final, problem.T) if double else iterate(merged, final, problem.T)
    root = {name: _mean_over(problem.start, value) for name, value in values.items()}
    result = _collect(problem, laws, seen, under_roll, root)
    return replace(result, **positions)


def _mean_over(start: Tensor, value: Tensor) -> Tensor:
    """Mean of ``[B, S, C]`` over the first state; a state that cannot be first counts nothing."""
    weighted = torch.where((start > 0).unsqueeze(-1), start.unsqueeze(-1) * value, 0.0)
    return weighted.sum(1)


def _kept(laws: TokenLaws, seen: Tensor) -> TokenLaws:
    """Token laws with every state that is not seen emptied, whatever it held."""
    held = {f.name: getattr(laws, f.name) for f in fields(TokenLaws)}
    return TokenLaws(
        **{
            name: torch.where(seen.unsqueeze(-1) if value.ndim == 3 else seen, value, 0.0)
            for name, value in held.items()
        }
    )


def reachable(first: Tensor, support: Tensor, next_state: Tensor, T: int) -> Tensor:
    """States in which one of the tokens ``1..T`` may be emitted, bool ``[B, S]``.

    Args:
        first: bool ``[B, S]``.
        support: bool ``[B, S, A]``, the tokens that have mass.
        next_state: int64 ``[B, S, A]``.
        T: horizon.
    """
    seen = first
    target = next_state.flatten(1)
    for _ in range(min(first.shape[1], T) - 1):
        pushed = (seen.unsqueeze(-1) & support).flatten(1).to(torch.uint8)
        arrived = torch.zeros_like(seen, dtype=torch.uint8).scatter_reduce(
            1, target, pushed, "amax"
        )
        grown = seen | arrived.bool()
        if torch.equal(grown, seen):
            break
        seen = grown
    return seen


def _system(problem: _Problem, laws: TokenLaws, edges: Edges) -> System:
    p, q, d = laws.roll, laws.theta, laws.difference
    root_p, root_q = p.sqrt(), q.sqrt()
    gap = torch.where(d == 0, 0.0, d / (root_p + root_q).clamp(min=1e-300))
    affinity, square = root_p * root_q, gap * gap
    ratio = torch.where(p > 0, q / p.clamp(min=1e-300), 0.0)
    gain = torch.where(p > 0, d / p.clamp(min=1e-300), 0.0)
    on_roll = torch.where(p > 0, d, 0.0)
    blocks: Blocks = {
        ("means", "means"): p,
        ("G", "G"): affinity,
        # coefficients of u^2, u, 1 with u = sqrt(M) - 1
        ("h2", "h2"): q,
        ("h1", "h2"): 2 * root_q * gap,
        ("h1", "h1"): affinity,
        ("h0", "h2"): square,
        ("h0", "h1"): root_p * gap,
        ("h0", "h0"): p,
        # coefficients of m^2, m, 1 with m = M - 1
        ("w2", "w2"): q * ratio,
        ("w1", "w2"): 2 * q * gain,
        ("w1", "w1"): torch.where(p > 0, q, 0.0),
        ("w0", "w2"): on_roll * gain,
        ("w0", "w1"): on_roll,
        ("w0", "w0"): p,
    }
    means = torch.stack([_finite(getattr(laws, name)) for name in MEANS], -1)
    zero = torch.zeros_like(laws.hel).unsqueeze(-1)
    h, x = laws.hel.unsqueeze(-1), _finite(laws.chi2).unsqueeze(-1)
    constants = {
        "means": means,
        "G": h / 2,
        "h2": h,
        "h1": zero,
        "h0": zero,
        "w2": x,
        "w1": zero,
        "w0": zero,
    }
    if problem.reward is not None or problem.terminal is not None:
        blocks |= {("V", "V"): p, ("D", "V"): d, ("D", "D"): q, ("U", "V"): d}
        blocks |= {("U", "U"): p, ("E", "D"): d, ("E", "E"): p}
        r = torch.zeros_like(p) if problem.reward is None else problem.reward
        # 0 * r is 0 even for a reward that no sequence earns
        earned = torch.where(p > 0, p * r, 0.0).sum(-1, keepdim=True)
        moved = torch.where(d != 0, d * r, 0.0).sum(-1, keepdim=True)
        constants |= {"V": earned, "D": moved, "U": moved, "E": zero}
    return System(edges, blocks, constants)


def _finite(value: Tensor) -> Tensor:
    return torch.where(torch.isinf(value), 0.0, value)


def _collect(
    problem: _Problem, laws: TokenLaws, seen: Tensor, under_roll: Tensor, root: dict[str, Tensor]
) -> MarkovQuantities:
    horizon = torch.full_like(problem.start[:, 0], float(problem.T))
    total = dict(zip(MEANS, root["means"].unbind(-1), strict=True))
    for name in MEANS:
        infinite = (torch.isinf(getattr(laws, name)) & under_roll).any(-1)
        total[name] = total[name].masked_fill(infinite, torch.inf)
    hel_seq = (2 * root["G"].squeeze(-1)).clamp(0, 2)
    routes = [
        (hel_seq * (1 - hel_seq / 4)).sqrt(),
        (total["kl"] / 2).sqrt(),
        total["tv"],
        torch.ones_like(hel_seq),
    ]
    square = root["w0"].squeeze(-1).nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=torch.inf)
    square = square.clamp(min=0).masked_fill(torch.isinf(total["chi2"]), torch.inf)
    returns: dict[str, Tensor] = {}
    if "V" in root:
        J_roll = root["V"].squeeze(-1)
        returns = {
            "J_roll": J_roll,
            "J_theta": J_roll + root["D"].squeeze(-1),
            "surrogate_gain": root["U"].squeeze(-1),
            "error": root["E"].squeeze(-1),
        }
    return MarkovQuantities(
        T=horizon,
        **{f"{n}_max": getattr(laws, n).masked_fill(~seen, 0.0).amax(-1) for n in MAXIMA},
        kl_seq=total["kl"],
        **{f"{name}_mean": total[name] / problem.T for name in MEANS if name != "kl"},
        hel_seq=hel_seq,
        hel_cross=root["h0"].squeeze(-1).clamp(min=0),
        tv_seq_low=hel_seq / 2,
        tv_seq_high=torch.stack(routes).amin(0),
        oracle_high=0.5 * square.sqrt(),
        **returns,
    )


def _per_position(problem: _Problem, laws: TokenLaws, edges: Edges) -> dict[str, Tensor]:
    """Means and maxima at each position, ``[B, T]``: seen from the start, ``t - 1`` steps ahead."""
    means = torch.stack([_finite(getattr(laws, name)) for name in MEANS], -1)
    largest = torch.stack([getattr(laws, name) for name in MAXIMA], -1)
    infinite = torch.stack([torch.isinf(getattr(laws, name)) for name in MEANS], -1)
    roll = torch.cat([largest, infinite.to(largest.dtype)], -1)
    theta = largest
    first = (problem.start > 0).unsqueeze(-1)
    on_roll, on_theta = (laws.roll > 0).unsqueeze(-1), (laws.theta > 0).unsqueeze(-1)
    mean_t, max_t = [], []
    for _ in range(problem.T):
        here = torch.where(first, roll, 0.0).amax(1)
        reached = here[:, len(MAXIMA) :] > 0
        mean_t.append(_mean_over(problem.start, means).masked_fill(reached, torch.inf))
        there = torch.where(first, theta, 0.0).amax(1)
        max_t.append(torch.maximum(here[:, : len(MAXIMA)], there))
        means = (laws.roll.unsqueeze(-1) * edges.follow(means)).sum(2)
        roll = torch.where(on_roll, edges.follow(roll), 0.0).amax(2)
        theta = torch.where(on_theta, edges.follow(theta), 0.0).amax(2)
    held = [(f"{name}_mean_t", mean_t, i) for i, name in enumerate(MEANS)]
    held += [(f"{name}_max_t", max_t, i) for i, name in enumerate(MAXIMA)]
    return {name: torch.stack([row[:, i] for row in rows], -1) for name, rows, i in held}


def prepare(
    log_roll: Tensor,
    log_theta: Tensor,
    next_state: Tensor,
    start: Tensor | None,
    reward: Tensor | None,
    terminal: Tensor | None,
    *,
    T: int,
    validate: bool,
) -> _Problem:
    """Gather and check the arguments of :func:`markov_quantities` (all but the total's range).

    Raises:
        InputError: names the argument, its row and the mend.
    """
    if validate:
        if not (isinstance(T, int) and T >= 1):
            raise InputError(f"T is {T}; a horizon is a whole number >= 1")
        for name, value in _policies(log_roll, log_theta):
            _check_policy(name, value, tuple(log_roll.shape))
        _check_targets("next_state", next_state, tuple(log_roll.shape), log_roll.shape[1])
        for name, given, shape in (
            ("reward", reward, log_roll.shape),
            ("terminal", terminal, log_roll.shape[:2]),
        ):
            if given is not None:
                _check_shape(name, given, tuple(shape), torch.float64)
                if bool(torch.isnan(given).any()):
                    raise InputError(f"{name} holds NaN; give numbers")
    batch, states = log_roll.shape[:2]
    law = torch.zeros((batch, states), dtype=torch.float64, device=log_roll.device)
    if start is None:
        law[:, 0] = 1.0
    elif start.dtype == torch.int64:
        if validate:
            _check_targets("start", start, (batch,), states)
        law.scatter_(1, start.unsqueeze(1), 1.0)
    else:
        if validate:
            _check_shape("start", start, (batch, states), torch.float64)
            bad = ~((start.sum(-1) - 1).abs() <= _SLACK) | (start < 0).any(-1)
            if bool(bad.any()):
                raise InputError(
                    f"start, row {int(bad.nonzero()[0])}: no law over states (sums to "
                    f"{float(start[bad][0].sum()):.9g}); give probabilities that sum to 1"
                )
        law = start
    return _Problem(log_roll, log_theta, next_state, law, reward, terminal, T)


def _policies(log_roll: Tensor, log_theta: Tensor) -> Iterator[tuple[str, Tensor]]:
    yield "log_roll", log_roll
    yield "log_theta", log_theta


def _check_shape(name: str, value: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    if tuple(value.shape) != shape or value.dtype != dtype:
        raise InputError(f"{name} is {value.dtype} {list(value.shape)}; give {dtype} {list(shape)}")


def _check_policy(name: str, value: Tensor, shape: tuple[int, ...]) -> None:
    if value.ndim != 3 or not value.numel():
        raise InputError(f"{name} has shape {list(value.shape)}; give [B, S, A], none empty")
    _check_shape(name, value, shape, torch.float64)
    total = value.detach().exp().sum(-1)
    bad = ~((total - 1).abs() <= _SLACK)
    if bool(bad.any()):
        b, s = (int(i) for i in bad.nonzero()[0])
        raise InputError(
            f"{name}, row {b}, state {s}: probabilities sum to {float(total[b, s]):.9g}, not 1; "
            "pass logits through log_softmax"
        )


def _check_targets(name: str, value: Tensor, shape: tuple[int, ...], states: int) -> None:
    _check_shape(name, value, shape, torch.int64)
    bad = (value < 0) | (value >= states)
    if bool(bad.any()):
        at = [int(i) for i in bad.nonzero()[0]]
        raise InputError(
            f"{name}{at} is {int(value[tuple(at)])}; a state is a number 0..{states - 1}"
        )


def check_reward_range(problem: _Problem, *, double: bool) -> None:
    """Refuse a reward whose total leaves [0, 1] on a sequence that roll or theta can emit.

    Raises:
        InputError: names the row and the offending total.
    """
    if problem.reward is None and problem.terminal is None:
        return
    edges = Edges(problem.next_state, problem.log_roll.shape[1])
    zeros = torch.zeros_like(problem.log_roll)
    reward = zeros if problem.reward is None else problem.reward
    final = zeros[:, :, 0] if problem.terminal is None else problem.terminal
    first = problem.start > 0
    for policy, log_prob in _policies(problem.log_roll, problem.log_theta):
        closed = log_prob == -torch.inf
        for sign, limit in ((1.0, 1.0), (-1.0, 0.0)):
            gain = (sign * reward).masked_fill(closed, -torch.inf)
            best = highest_total(edges, gain, sign * final, problem.T, double=double)
            total = sign * best.masked_fill(~first, -torch.inf).amax(-1)
            bad = sign * (total - limit) > _SLACK
            if bool(bad.any()):
                b = int(bad.nonzero()[0])
                raise InputError(
                    f"reward, row {b}: a sequence that {policy[4:]} can emit earns "
                    f"{float(total[b]):.9g} in all; shift and scale rewards so that every total "
                    "is in [0, 1]"
                )
