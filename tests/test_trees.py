"""Exact trees against plain enumeration, 40-digit arithmetic, autograd and infinite divergences."""

from __future__ import annotations

import itertools
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bounds.errors import InputError
from bounds.evaluate import evaluate
from simulations.contexts import TreeShape
from simulations.tree_future import adaptive_steps, future_tv
from simulations.trees import (
    TreeQuantities,
    batch_size,
    leaf_weights,
    tree_bytes,
    tree_quantities,
)

SHAPES = st.sampled_from([TreeShape(1, 3), TreeShape(2, 2), TreeShape(3, 2), TreeShape(3, 3)])


def draw(
    shape: TreeShape, batch: int, seed: int, scale: float, holes: float = 0.0
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Random policies (a share ``holes`` of tokens has no mass) and rewards."""
    generator = torch.Generator().manual_seed(seed)
    size = (batch, shape.contexts, shape.V)
    logits = 2 * torch.randn(size, generator=generator, dtype=torch.float64)
    noise = scale * torch.randn(size, generator=generator, dtype=torch.float64)
    policies = []
    for raw in (logits, logits + noise):
        gone = torch.rand(size, generator=generator, dtype=torch.float64) < holes
        gone[..., 0] = False
        policies.append(raw.masked_fill(gone, -torch.inf).log_softmax(-1))
    reward = torch.rand(batch, shape.leaves, generator=generator, dtype=torch.float64)
    return policies[0], policies[1], reward


def enumerate_tree(
    log_roll: torch.Tensor, log_theta: torch.Tensor, reward: torch.Tensor, shape: TreeShape
) -> dict[str, Any]:
    """One tree from the definitions, sequence by sequence, in 40-digit arithmetic."""
    mpmath.mp.dps = 40

    def law(row: torch.Tensor) -> list[Any]:
        mass = [mpmath.exp(v) if v > -np.inf else mpmath.mpf(0) for v in row.tolist()]
        return [m / mpmath.fsum(mass) for m in mass]

    V, T = shape.V, shape.T
    p = [law(row) for row in log_roll]
    q = [law(row) for row in log_theta]
    starts = [shape.level(t).start for t in range(T)]

    def context(tokens: tuple[int, ...]) -> int:
        index = 0
        for token in tokens:
            index = index * V + token
        return starts[len(tokens)] + index

    def mass(policy: list[list[Any]], tokens: tuple[int, ...]) -> Any:
        product = mpmath.mpf(1)
        for t, token in enumerate(tokens):
            product *= policy[context(tokens[:t])][token]
        return product

    found: dict[str, Any] = {k: mpmath.mpf(0) for k in ("oracle", "error", "surrogate_gain")}
    found |= {k: mpmath.mpf(0) for k in ("J_roll", "J_theta", "tv_seq", "hel_seq", "hel_cross")}
    for leaf, tokens in enumerate(itertools.product(range(V), repeat=T)):
        P, Q = mass(p, tokens), mass(q, tokens)
        # L' puts theta at one position and roll before and after it
        linear = mpmath.mpf(0)
        for t in range(T):
            at = context(tokens[:t])
            rest = mpmath.mpf(1)
            for s in range(t + 1, T):
                rest *= p[context(tokens[:s])][tokens[s]]
            step = q[at][tokens[t]] - p[at][tokens[t]]
            linear += mass(p, tokens[:t]) * step * rest
        w = Q - P - linear
        r = mpmath.mpf(float(reward[leaf]))
        found["oracle"] += abs(w) / 2
        found["error"] += w * r
        found["surrogate_gain"] += linear * r
        found["J_roll"] += P * r
        found["J_theta"] += Q * r
        found["tv_seq"] += abs(Q - P) / 2
        found["hel_seq"] += (mpmath.sqrt(Q) - mpmath.sqrt(P)) ** 2
    for t in range(T):
        columns: dict[str, list[Any]] = {k: [] for k in ("kl", "tv", "chi2", "hel", "quartic")}
        weights, reached = [], []
        for tokens in itertools.product(range(V), repeat=t):
            a, b = p[context(tokens)], q[context(tokens)]
            pairs = list(zip(a, b, strict=True))
            roll_only = any(x > 0 and y == 0 for x, y in pairs)
            theta_only = any(y > 0 and x == 0 for x, y in pairs)
            both = [(x, y) for x, y in pairs if x > 0 and y > 0]
            inf = mpmath.inf
            gaps = [(mpmath.sqrt(y) - mpmath.sqrt(x)) ** 2 for x, y in pairs]
            columns["hel"].append(mpmath.fsum(gaps))
            columns["tv"].append(mpmath.fsum(abs(x - y) for x, y in pairs) / 2)
            kl = mpmath.fsum(x * mpmath.log(x / y) for x, y in both)
            columns["kl"].append(inf if roll_only else kl)
            present = [(x, y, g) for (x, y), g in zip(pairs, gaps, strict=True) if x > 0]
            chi2 = mpmath.fsum((y - x) ** 2 / x for x, y, _ in present)
            columns["chi2"].append(inf if theta_only else chi2)
            quartic = mpmath.fsum(g**2 / x for x, _, g in present)
            columns["quartic"].append(inf if theta_only else quartic)
            P, Q = mass(p, tokens), mass(q, tokens)
            weights.append(P)
            reached.append(P > 0 or Q > 0)
            found["hel_cross"] += columns["hel"][-1] * (mpmath.sqrt(Q) - mpmath.sqrt(P)) ** 2
        for kind, values in columns.items():
            mean = mpmath.fsum(w * v for w, v in zip(weights, values, strict=True) if w > 0)
            found.setdefault(f"{kind}_mean_t", []).append(mean)
            worst = max(v for v, hit in zip(values, reached, strict=True) if hit)
            found.setdefault(f"{kind}_max_t", []).append(worst)
    found["kl_seq"] = mpmath.fsum(found["kl_mean_t"])
    return found


@settings(max_examples=40, deadline=None)
@given(
    shape=SHAPES,
    seed=st.integers(0, 10**6),
    scale=st.sampled_from([1e-7, 1e-4, 0.1, 1.0, 5.0]),
    holes=st.sampled_from([0.0, 0.0, 0.3]),
)
def test_matches_the_definitions_in_40_digits(
    shape: TreeShape, seed: int, scale: float, holes: float
) -> None:
    roll, theta, reward = draw(shape, 2, seed, scale, holes)
    got = tree_quantities(roll, theta, reward, shape=shape)
    for b in range(2):
        exact = enumerate_tree(roll[b], theta[b], reward[b], shape)
        for name, wanted in exact.items():
            values = getattr(got[b], name, None)
            if values is None:
                assert name == "quartic_max_t"
                continue
            for value, truth in zip(
                np.atleast_1d(values.numpy()), np.atleast_1d(wanted), strict=True
            ):
                if mpmath.isinf(truth):
                    assert np.isinf(value), name
                else:
                    # log-probs carry 1e-16 each: an x of 1e-7 has a relative error near 1e-8
                    tolerance = 1e-15 + 1e-11 * abs(float(truth)) + 3e-15 * scale
                    if scale < 1e-5:
                        tolerance += 1e-7 * abs(float(truth))
                    assert abs(value - float(truth)) <= tolerance, (name, value, truth)


@settings(max_examples=25)
@given(shape=SHAPES, seed=st.integers(0, 10**6), holes=st.sampled_from([0.0, 0.4]))
def test_identities(shape: TreeShape, seed: int, holes: float) -> None:
    roll, theta, reward = draw(shape, 8, seed, 1.0, holes)
    got = tree_quantities(roll, theta, reward, shape=shape)
    weights = leaf_weights(roll, theta, shape=shape)
    assert got.J_theta is not None
    assert got.J_roll is not None
    assert got.error is not None
    assert got.surrogate_gain is not None
    torch.testing.assert_close(
        got.J_theta - got.J_roll - got.surrogate_gain, got.error, atol=1e-14, rtol=0
    )
    torch.testing.assert_close(
        weights.excess.sum(-1), torch.zeros(8, dtype=torch.float64), atol=1e-14, rtol=0
    )
    worst = (weights.excess > 0).double()
    attained = tree_quantities(roll, theta, worst, shape=shape).error
    torch.testing.assert_close(attained, got.oracle, atol=1e-14, rtol=1e-12)
    assert (got.error.abs() <= got.oracle + 1e-15).all()


@settings(max_examples=25)
@given(shape=SHAPES, seed=st.integers(0, 10**6), scale=st.floats(1e-5, 6.0))
def test_no_bound_is_violated_with_holes_in_either_support(
    shape: TreeShape, seed: int, scale: float
) -> None:
    roll, theta, _ = draw(shape, 64, seed, scale, holes=0.3)
    got = tree_quantities(roll, theta, shape=shape)
    for entry in evaluate(validate=False, **got.inputs()):
        if entry.value is not None and entry.certified and entry.bound.role != "oracle":
            slack = entry.value - got.oracle * (1 - 1e-9) + 1e-15
            assert (slack >= 0).all(), (entry.name, int(slack.argmin()))


@settings(max_examples=25)
@given(shape=SHAPES, seed=st.integers(0, 10**6), holes=st.sampled_from([0.0, 0.3]))
def test_steps_of_adaptive_are_ordered_and_futures_match(
    shape: TreeShape, seed: int, holes: float
) -> None:
    roll, theta, _ = draw(shape, 6, seed, 1.0, holes)
    got = tree_quantities(roll, theta, shape=shape)
    steps = adaptive_steps(roll, theta, shape=shape)
    sharp = evaluate(["adaptive-positionwise-sharp"], validate=False, **got.inputs())
    bound = sharp["adaptive-positionwise-sharp"].value
    torch.testing.assert_close(steps.oracle, got.oracle, atol=1e-15, rtol=1e-12)
    assert (steps.oracle <= steps.triangle + 1e-14).all()
    assert (steps.triangle <= steps.largest_future + 1e-14).all()
    assert (steps.largest_future <= bound + 1e-14).all()
    future = future_tv(roll, theta, shape=shape)
    torch.testing.assert_close(future[:, 0], got.tv_seq, atol=1e-14, rtol=1e-12)
    if shape.T > 1:  # the tree below the first token of the first level, as a tree of its own
        below = TreeShape(shape.T - 1, shape.V)
        rows = torch.cat(
            [
                torch.arange(shape.level(t + 1).start, shape.level(t + 1).start + shape.V**t)
                for t in range(below.T)
            ]
        )
        alone = tree_quantities(roll[:, rows], theta[:, rows], shape=below)
        torch.testing.assert_close(future[:, 1], alone.tv_seq, atol=1e-14, rtol=1e-12)


def test_gradients_match_finite_differences() -> None:
    shape = TreeShape(3, 2)
    roll, theta, reward = draw(shape, 2, 5, 0.5)

    def total(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        got = tree_quantities(
            a.log_softmax(-1), b.log_softmax(-1), reward, shape=shape, validate=False
        )
        assert got.error is not None
        names = ["oracle", "tv_seq", "kl_seq", "hel_seq", "hel_cross", "quartic_mean_t"]
        names += ["chi2_max_t", "kl_mean_t", "tv_max_t"]
        return (got.error, *(getattr(got, name) for name in names))

    inputs = (roll.requires_grad_(), theta.requires_grad_())
    assert torch.autograd.gradcheck(total, inputs, atol=1e-7)


def test_batch_is_the_same_to_the_bit_as_one_by_one() -> None:
    shape = TreeShape(3, 3)
    roll, theta, reward = draw(shape, 5000, 1, 1.0)  # more than one block
    whole = tree_quantities(roll, theta, reward, shape=shape)
    for b in (0, 17, 4999):
        one = tree_quantities(roll[b : b + 1], theta[b : b + 1], reward[b : b + 1], shape=shape)
        for name, value in vars(whole).items():
            assert torch.equal(value[b], getattr(one, name)[0]), name


def test_infinite_kl_leaves_total_variation_finite() -> None:
    roll = torch.tensor([[[0.5, 0.5]]], dtype=torch.float64).log()
    theta = torch.tensor([[[1.0, 0.0]]], dtype=torch.float64).log()
    shape = TreeShape(1, 2)
    got = tree_quantities(roll, theta, shape=shape)
    assert got.kl_seq.isinf().all()
    assert got.kl_max_t.isinf().all()
    assert float(got.tv_seq) == 0.5
    assert float(got.tv_max_t) == 0.5
    assert float(got.chi2_max_t) == 1.0
    back = tree_quantities(theta, roll, shape=shape)
    assert back.chi2_mean_t.isinf().all()
    assert back.quartic_mean_t.isinf().all()
    assert float(back.kl_seq) == pytest.approx(np.log(2), rel=1e-15)
    routes = evaluate(["coupling-sharp", "mixed-tv-sharp"], validate=False, **got.inputs())
    assert all(bool(torch.isfinite(entry.value).all()) for entry in routes)


def test_a_context_that_neither_policy_reaches_has_no_say() -> None:
    shape = TreeShape(2, 2)
    rows = torch.tensor([[1.0, 0.0], [0.5, 0.5], [1.0, 0.0]], dtype=torch.float64)
    other = torch.tensor([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]], dtype=torch.float64)
    got = tree_quantities(rows.log()[None], other.log()[None], shape=shape)
    assert float(got.tv_max_t.max()) == 0
    assert float(got.kl_seq) == 0
    assert float(got.oracle) == 0


def _bad(change: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, TreeShape]:
    shape = TreeShape(2, 2)
    roll, theta, reward = draw(shape, 3, 0, 1.0)
    if change == "sum":
        roll[1, 2] = roll[1, 2] + 0.01
    elif change == "nan":
        theta[2, 0, 1] = torch.nan
    elif change == "empty":
        theta[0, 1] = -torch.inf
    elif change == "float32":
        roll = roll.float()
    elif change == "shape":
        roll = roll[:, :-1]
    elif change == "batch":
        theta = theta[:2]
    elif change == "reward":
        reward[1, 3] = 1.5
    elif change == "reward-nan":
        reward[0, 0] = torch.nan
    elif change == "leaves":
        reward = reward[:, :-1]
    return roll, theta, reward, shape


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("sum", "log_roll, tree 1, context 2: probabilities sum to 1.01"),
        ("nan", "log_theta, tree 2, context 0"),
        ("empty", "log_theta, tree 0, context 1: probabilities sum to 0"),
        ("float32", "float32.*float64"),
        ("shape", "needs"),
        ("batch", "3 trees and log_theta 2"),
        ("reward", "tree 1, sequence 3: 1.5 is outside"),
        ("reward-nan", "tree 0, sequence 0: nan"),
        ("leaves", "one reward a whole sequence"),
    ],
)
def test_bad_input_is_named(change: str, said: str) -> None:
    roll, theta, reward, shape = _bad(change)
    with pytest.raises(InputError, match=said):
        tree_quantities(roll, theta, reward, shape=shape)


def test_memory_decides_the_batch() -> None:
    shape = TreeShape(4, 4)
    assert batch_size(shape, 10 * tree_bytes(shape)) == 10
    with pytest.raises(InputError, match="--memory"):
        batch_size(TreeShape(12, 4), 2**20)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_cuda_agrees_with_cpu() -> None:
    shape = TreeShape(4, 3)
    roll, theta, reward = draw(shape, 300, 3, 1.0)
    cpu: TreeQuantities = tree_quantities(roll, theta, reward, shape=shape)
    gpu = tree_quantities(roll.cuda(), theta.cuda(), reward.cuda(), shape=shape)
    for name, value in vars(cpu).items():
        torch.testing.assert_close(getattr(gpu, name).cpu(), value, atol=1e-13, rtol=1e-11)
