"""Certificates from a log: coverage on enumerable instances, width against its rivals, misuse."""

from __future__ import annotations

import itertools
import math
from random import Random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bounds.confidence import OneSidedBound, mean_upper_confidence, oracle_upper_confidence
from bounds.errors import InputError

ALPHA = 0.05


class Tree:
    """A random full tree: law over trajectories, ``log M``, ``S``, and the worst-reward error.

    ``holes`` of roll's tokens have no mass under roll though theta has some; as many of theta's
    have none under theta.
    """

    def __init__(
        self, seed: int, T: int = 3, V: int = 3, scale: float = 0.7, holes: float = 0.0
    ) -> None:
        rng = np.random.default_rng(seed)
        self.T = T
        paths = list(itertools.product(range(V), repeat=T))
        laws: dict[tuple[int, ...], tuple[np.ndarray, np.ndarray]] = {}
        for path in paths:
            for t in range(T):
                if path[:t] in laws:
                    continue
                z = rng.normal(size=V)
                roll, theta = np.exp(z), np.exp(z + scale * rng.normal(size=V))
                if rng.random() < holes:
                    roll[rng.integers(V)] = 0.0
                if rng.random() < holes:
                    theta[rng.integers(V)] = 0.0
                laws[path[:t]] = (roll / roll.sum(), theta / theta.sum())
        p, q, S = np.ones(len(paths)), np.ones(len(paths)), np.zeros(len(paths))
        for i, path in enumerate(paths):
            for t in range(T):
                a, b = laws[path[:t]]
                p[i] *= a[path[t]]
                q[i] *= b[path[t]]
                if a[path[t]] > 0:
                    S[i] += b[path[t]] / a[path[t]] - 1
        self.p, self.q = p, q
        seen = p > 0
        # |Error| of the worst reward, straight from its definition J(theta) - J(roll) - L'
        gain = q - p - p * np.where(seen, S, 0.0)
        self.oracle = max(gain[gain > 0].sum(), -gain[gain < 0].sum())
        self.law = p[seen]
        self.S = S[seen]
        with np.errstate(divide="ignore"):
            self.log_m = np.log(q[seen]) - np.log(p[seen])


def failures(law: np.ndarray, log_m: np.ndarray, S: np.ndarray, T: int, oracle: float,
             n: int, logs: int, seed: int = 0, level: float = 0.95) -> int:  # fmt: skip
    """How many of ``logs`` replicated logs of ``n`` sequences give a bound below the Oracle."""
    drawn = np.random.default_rng(seed).choice(len(law), size=(logs, n), p=law / law.sum())
    bound = oracle_upper_confidence(log_m[drawn], S[drawn], T, level=level)
    return int((bound.value < oracle).sum())


def allowed(logs: int, alpha: float = ALPHA) -> float:
    """Failures that a true rate ``alpha`` exceeds with probability below 1e-4."""
    return alpha * logs + 3.8 * math.sqrt(alpha * (1 - alpha) * logs)


@pytest.mark.parametrize("holes", [0.0, 0.5])
def test_mean_of_z_is_the_worst_error_whatever_the_supports(holes: float) -> None:
    for seed in range(25):
        tree = Tree(seed, holes=holes)
        Z = np.maximum(-np.expm1(tree.log_m), -tree.S)
        assert tree.law @ Z == pytest.approx(tree.oracle, rel=1e-12)
        half_mean = 0.5 * tree.law @ np.abs(np.exp(tree.log_m) - 1 - tree.S)
        assert tree.oracle >= half_mean - 1e-12
        if not holes:
            assert tree.oracle == pytest.approx(half_mean, rel=1e-12)


@pytest.mark.parametrize(("n", "scale", "holes"), [(20, 0.5, 0.0), (300, 1.5, 0.0), (50, 1, 0.5)])
def test_coverage_on_trees(n: int, scale: float, holes: float) -> None:
    logs = 2000
    for seed in range(2):
        tree = Tree(seed, scale=scale, holes=holes)
        missed = failures(tree.law, tree.log_m, tree.S, tree.T, tree.oracle, n, logs)
        assert missed <= allowed(logs)


def rare_branch(p: float, T: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Roll enters with probability ``p`` a branch where theta's tokens are not roll's."""
    law = np.array([1 - p, p])
    return law, np.array([0.0, -np.inf]), np.array([0.0, -(T - 1.0)]), p * (T - 1)


@pytest.mark.parametrize("times", [0.5, 0.99, 1.01, 2.0, 5.0])
def test_coverage_when_the_event_is_as_rare_as_can_hide(times: float) -> None:
    n, T, logs = 100, 50, 4000
    law, log_m, S, oracle = rare_branch(times * (1 - ALPHA ** (1 / n)), T)
    assert failures(law, log_m, S, T, oracle, n, logs) <= allowed(logs)


def test_coverage_with_heavy_tails() -> None:
    """i.i.d. tokens with a rare huge ratio: M has no usable variance at this n."""
    T, n, logs, p = 40, 200, 2000, 2e-3
    high, low = 0.3 / p, 0.7 / (1 - p)
    k = np.arange(T + 1)
    log_law = np.array([math.log(math.comb(T, int(i))) for i in k])
    law = np.exp(log_law + k * math.log(p) + (T - k) * math.log1p(-p))
    log_m = k * math.log(high) + (T - k) * math.log(low)
    S = k * (high - 1) + (T - k) * (low - 1)
    oracle = float(law @ np.maximum(-np.expm1(log_m), -S))
    assert oracle == pytest.approx(float(law @ np.abs(np.exp(log_m) - 1 - S)) / 2, rel=1e-9)
    assert failures(law, log_m, S, T, oracle, n, logs) <= allowed(logs)


def test_coverage_of_the_average_when_prompts_differ() -> None:
    """A fixed list of prompts with several responses each: independent, not identical."""
    trees = [Tree(seed, scale=0.3 + 0.3 * seed) for seed in range(5)]
    logs, each = 2000, 10
    rng = np.random.default_rng(0)
    log_m, S = [], []
    for tree in trees:
        drawn = rng.choice(len(tree.law), size=(logs, each), p=tree.law / tree.law.sum())
        log_m.append(tree.log_m[drawn])
        S.append(tree.S[drawn])
    bound = oracle_upper_confidence(np.hstack(log_m), np.hstack(S), trees[0].T)
    mean = float(np.mean([tree.oracle for tree in trees]))
    assert int((bound.value < mean).sum()) <= allowed(logs)


def test_the_unit_is_the_prompt_for_the_population() -> None:
    """Many responses to few prompts: sequences as units would miss, prompts do not."""
    T, prompts, each, logs = 10, 30, 40, 300
    rng = np.random.default_rng(1)
    bad = rng.random((logs, prompts)) < 0.03  # on a bad prompt theta shares nothing with roll
    S = np.repeat(np.where(bad, -float(T), 0.0), each, axis=1)
    log_m = np.where(S < 0, -np.inf, 0.0)
    oracle = 0.03 * T
    groups = np.repeat(np.arange(prompts), each)
    by_prompt = sum(
        oracle_upper_confidence(log_m[i], S[i], T, groups=groups).value < oracle
        for i in range(logs)
    )
    by_sequence = int((oracle_upper_confidence(log_m, S, T).value < oracle).sum())
    assert by_prompt <= allowed(logs)
    assert by_sequence > allowed(logs)
    one = oracle_upper_confidence(log_m[0], S[0], T, groups=groups)
    assert one.n == prompts
    assert "population" in str(one)


def empirical_bernstein(z: np.ndarray, low: float, high: float) -> float:
    """Maurer and Pontil (2009), one-sided."""
    n, log_term = len(z), math.log(2 / ALPHA)
    width = math.sqrt(2 * z.var(ddof=1) * log_term / n)
    return float(z.mean() + width + 7 * (high - low) * log_term / (3 * (n - 1)))


def hoeffding(z: np.ndarray, low: float, high: float) -> float:
    return float(z.mean() + (high - low) * math.sqrt(math.log(1 / ALPHA) / (2 * len(z))))


@pytest.mark.parametrize("n", [100, 1000, 10_000])
@pytest.mark.parametrize("T", [10, 100, 1000])
def test_narrower_than_empirical_bernstein_and_hoeffding(n: int, T: int) -> None:
    """Theirs need a lower end too: they are given the data's own, which is more than they may."""
    rng = np.random.default_rng(n + T)
    ell = 0.05 * rng.normal(size=(n, T)) - 0.05**2 / 2
    S, log_m = np.expm1(ell).sum(axis=1), ell.sum(axis=1)
    z = np.maximum(-np.expm1(log_m), -S)
    ours = oracle_upper_confidence(log_m, S, T).value
    assert ours > z.mean()
    assert ours < empirical_bernstein(z, z.min(), T)
    assert ours < hoeffding(z, z.min(), T)


@pytest.mark.parametrize("n", [1, 2, 10, 1000, 100_000])
def test_a_log_of_ones_costs_what_it_must(n: int) -> None:
    T = 100
    bound = oracle_upper_confidence(np.zeros(n), np.zeros(n), T).value
    must = 1 - ALPHA ** (1 / n)
    assert must * (T - 1) < bound <= (1 - (ALPHA / 2) ** (1 / n)) * T * (1 + 1e-9)


def test_floor_shrinks_the_range() -> None:
    rng = np.random.default_rng(0)
    ell = np.clip(0.05 * rng.normal(size=(500, 200)), -0.2, 0.2)
    S, log_m = np.expm1(ell).sum(axis=1), ell.sum(axis=1)
    plain = oracle_upper_confidence(log_m, S, 200)
    floored = oracle_upper_confidence(log_m, S, 200, floor=math.exp(-0.2))
    assert floored.upper == pytest.approx(200 * -math.expm1(-0.2))
    assert floored.value < plain.value / 2
    assert "no ratio can be below" in str(floored)


finite = st.floats(-1e6, 3.0)


@given(st.lists(finite, min_size=1, max_size=30), st.randoms(), st.floats(0.01, 0.99))
def test_monotone_and_blind_to_order(z: list[float], random: Random, level: float) -> None:
    bound = mean_upper_confidence(z, 3.0, level)
    assert np.mean(z) <= bound.value + 1e-9 * (1 + abs(np.mean(z)))
    assert bound.value <= 3.0
    shuffled = list(z)
    random.shuffle(shuffled)
    slack = 1e-9 * (4 + max(map(abs, z)))
    assert mean_upper_confidence(shuffled, 3.0, level).value == pytest.approx(
        bound.value, abs=slack
    )
    assert mean_upper_confidence(z, 3.0, (1 + level) / 2).value >= bound.value - slack
    raised = [(value + 3.0) / 2 for value in z]
    assert mean_upper_confidence(raised, 3.0, level).value >= bound.value - slack


@given(st.floats(0.1, 1e6), st.floats(-1e3, 1e3))
def test_scales_and_shifts_with_the_data(scale: float, shift: float) -> None:
    z = np.array([-2.0, -0.5, 0.1, 0.4, 0.9])
    plain = mean_upper_confidence(z, 1.0).value
    moved = mean_upper_confidence(scale * z + shift, scale + shift + 1e-12 * abs(shift)).value
    assert moved == pytest.approx(scale * plain + shift, abs=1e-6 * (scale + abs(shift)))


def test_the_mixture_is_at_its_target() -> None:
    """The bound solves its own equation, by another root finder on the definition."""
    from scipy.optimize import brentq

    z = np.random.default_rng(3).gamma(2.0, 0.5, size=40).clip(max=4.0)
    least = math.sqrt(2 * math.log(20) / 40)
    halvings = math.ceil(-math.log2(least))

    def wealth(m: float) -> float:
        total = 0.0
        for k in range(halvings + 1):
            weight = 0.5 if k == 0 else 0.5 / halvings
            c = 0.5**k
            total += weight * float(np.prod(1 + c / (4 - m) * (m - z)))
        return total - 20

    root = brentq(wealth, z.mean(), 4 - 1e-6, xtol=1e-13)
    assert mean_upper_confidence(z, 4.0).value == pytest.approx(root, abs=1e-11)


def test_extreme_values() -> None:
    assert mean_upper_confidence([2.0, 2.0], 2.0).value == 2.0
    assert mean_upper_confidence([2.0, -math.inf], 2.0).value < 2.0
    # M overflows, S does not matter: the row lowers the mean, and is harmless
    bound = oracle_upper_confidence([5000.0, 0.0], [math.inf, 0.0], 10)
    assert 0 <= bound.value <= 10
    # theta without mass
    bound = oracle_upper_confidence([-math.inf] * 3, [-1.0, -2.0, -1.0], 2)
    assert bound.value <= 2
    assert bound.estimate == pytest.approx(4 / 3)
    assert oracle_upper_confidence([1.0] * 500, [1.8] * 500, 3).value >= 0


def test_torch_and_batches_agree_with_numpy() -> None:
    rng = np.random.default_rng(0)
    ell = 0.2 * rng.normal(size=(4, 50, 6))
    log_m, S = ell.sum(axis=-1), np.expm1(ell).sum(axis=-1)
    batched = oracle_upper_confidence(log_m, S, 6)
    tensors = oracle_upper_confidence(torch.tensor(log_m), torch.tensor(S), 6)
    assert isinstance(tensors.value, torch.Tensor)
    np.testing.assert_allclose(tensors.value.numpy(), batched.value, rtol=1e-12)
    for i in range(4):
        assert oracle_upper_confidence(log_m[i], S[i], 6).value == pytest.approx(batched.value[i])
    assert "array(4,)" in str(batched)


def test_prints_what_it_rests_on() -> None:
    bound = oracle_upper_confidence([0.1, -0.1], [0.1, -0.1], 5)
    assert isinstance(bound, OneSidedBound)
    text = str(bound)
    for words in ("certified at 95%", "independently from roll", "not trained on it", "T = 5"):
        assert words in text
    assert "certified at 99.5%" in str(oracle_upper_confidence([0.0], [0.0], 5, level=0.995))


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        (([], [], 3), {}, "log_ratio_sum holds no values"),
        (([0.0], [0.0, 0.0], 3), {}, "shape"),
        (([0.0, math.nan], [0.0, 0.0], 3), {}, r"log_ratio_sum\[1\] is nan"),
        (([0.0], ["x"], 3), {}, "ratio_excess_sum is not numeric"),
        (([math.inf], [0.0], 3), {}, "roll sampled every token"),
        (([0.5], [0.1], 3), {}, "swapped"),
        (([-math.inf], [-3.5], 3), {}, "raise T"),
        (([0.0], [0.0], 0), {}, "T is 0"),
        (([0.0], [0.0], 2.5), {}, "T is 2.5"),
        (([0.0], [0.0], 3), {"level": 1.0}, "level is 1.0"),
        (([0.0], [0.0], 3), {"floor": 1.0}, "floor is 1.0"),
        (([-0.9], [-0.8], 3), {"floor": 0.9}, "lower floor"),
        (([-9.0], [-0.2], 3), {"floor": 0.9}, "lower floor"),
        (([0.0, 0.0], [0.0, 0.0], 3), {"groups": ["a"]}, "one prompt label"),
    ],
)
def test_bad_input_is_one_line(
    arguments: tuple[object, ...], options: dict[str, object], words: str
) -> None:
    with pytest.raises(InputError, match=words) as caught:
        oracle_upper_confidence(*arguments, **options)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_bad_mean_input() -> None:
    with pytest.raises(InputError, match=r"z\[1\] is 2, above upper = 1"):
        mean_upper_confidence([0.0, 2.0], 1.0)
    with pytest.raises(InputError, match="upper is inf"):
        mean_upper_confidence([0.0], math.inf)
    with pytest.raises(InputError, match="z holds no values"):
        mean_upper_confidence([], 1.0)
    with pytest.raises(InputError, match=r"level is -1"):
        mean_upper_confidence([0.0], 1.0, level=-1)


@pytest.mark.slow
def test_coverage_over_many_trees() -> None:
    logs = 4000
    for seed in range(40):
        tree = Tree(seed, scale=0.2 + 0.05 * seed, holes=0.3 * (seed % 2))
        for n in (10, 100, 400):
            missed = failures(tree.law, tree.log_m, tree.S, tree.T, tree.oracle, n, logs, seed)
            assert missed <= allowed(logs)
