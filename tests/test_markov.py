"""Markov MDPs: dynamic programming and Monte Carlo against enumeration, mpmath, closed forms."""

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
from simulations.iid import iid_quantities
from simulations.markov import MAXIMA, MEANS, MarkovQuantities, markov_quantities
from simulations.markov_mc import catoni, markov_monte_carlo

RETURNS = ("J_roll", "J_theta", "surrogate_gain", "error")
SCALARS = (
    *(f"{name}_max" for name in MAXIMA),
    *(f"{name}_mean" for name in MEANS if name != "kl"),
    *("kl_seq", "hel_seq", "hel_cross", "tv_seq_low", "tv_seq_high", "oracle_high"),
    *RETURNS,
)


def instance(
    B: int, S: int, A: int, T: int, *, seed: int = 0, scale: float = 0.5, sparse: bool = False
) -> dict[str, Any]:
    """Random policies, automata and rewards whose total is in [0, 1]."""
    g = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=g, dtype=torch.float64)

    logits = normal(B, S, A)
    other = logits + scale * normal(B, S, A)
    if sparse:
        for given_logits in (logits, other):
            hole = torch.rand((B, S, A), generator=g) < 0.25
            hole[:, :, 0] = False
            given_logits.masked_fill_(hole, -torch.inf)
    return {
        "log_roll": logits.log_softmax(-1),
        "log_theta": other.log_softmax(-1),
        "next_state": torch.randint(0, S, (B, S, A), generator=g),
        "start": torch.rand((B, S), generator=g, dtype=torch.float64).softmax(-1),
        "reward": torch.rand((B, S, A), generator=g, dtype=torch.float64) / (2 * T),
        "terminal": torch.rand((B, S), generator=g, dtype=torch.float64) / 2,
        "T": T,
    }


def enumerated(mdp: dict[str, Any], b: int) -> dict[str, Any]:
    """Everything by its definition, from the list of all paths of MDP ``b``."""
    p, q = (np.exp(mdp[k][b].numpy()) for k in ("log_roll", "log_theta"))
    step, r = mdp["next_state"][b].numpy(), mdp["reward"][b].numpy()
    T, S = mdp["T"], len(p)
    with np.errstate(divide="ignore", invalid="ignore"):
        rho = np.where(p > 0, q / p, np.where(q > 0, np.inf, 0.0))
        token = {
            "kl": np.where(p > 0, p * np.log(p / q), 0.0).sum(1).clip(0),
            "tv": np.abs(p - q).sum(1) / 2,
            "chi2": np.where(p > 0, p * (rho - 1) ** 2, np.where(q > 0, np.inf, 0.0)).sum(1),
            "hel": ((np.sqrt(q) - np.sqrt(p)) ** 2).sum(1),
            "quartic": np.where(
                p > 0, p * (np.sqrt(rho) - 1) ** 4, np.where(q > 0, np.inf, 0.0)
            ).sum(1),
        }
    paths = [
        (s, tokens) for s in range(S) for tokens in itertools.product(range(p.shape[1]), repeat=T)
    ]
    P, Q, R, W = (np.zeros(len(paths)) for _ in range(4))
    mean = {name: np.zeros(T) for name in token}
    largest = {name: np.zeros(T) for name in token}
    cross = 0.0
    for i, (first, tokens) in enumerate(paths):
        s, total = first, 0.0
        a, c = float(mdp["start"][b, first]), float(mdp["start"][b, first])
        linear = 0.0
        for t, y in enumerate(tokens):
            # a context is counted once for each way to complete it
            share = 1.0 / p.shape[1] ** (T - t)
            for name, values in token.items():
                if a > 0:
                    mean[name][t] += a * share * values[s]
                if a > 0 or c > 0:
                    largest[name][t] = max(largest[name][t], values[s])
            cross += share * token["hel"][s] * (np.sqrt(c) - np.sqrt(a)) ** 2
            linear += rho[s, y] - 1 if p[s, y] > 0 else 0.0
            total += r[s, y]
            a, c, s = a * p[s, y], c * q[s, y], int(step[s, y])
        P[i], Q[i], R[i] = a, c, total + float(mdp["terminal"][b, s])
        W[i] = c / a - 1 - linear if a > 0 else 0.0
    gain = _surrogate(p, q, step, r, mdp, b)
    return {
        **{f"{name}_mean_t": values for name, values in mean.items()},
        **{f"{name}_max_t": values for name, values in largest.items() if name != "quartic"},
        "hel_cross": cross,
        "hel_seq": ((np.sqrt(P) - np.sqrt(Q)) ** 2).sum(),
        "tv_seq": np.abs(P - Q).sum() / 2,
        "oracle": (P * np.abs(W)).sum() / 2,
        "oracle_high": np.sqrt((P * W**2).sum()) / 2,
        "J_roll": P @ R,
        "J_theta": Q @ R,
        "surrogate_gain": gain,
        "error": (Q - P) @ R - gain,
    }


def _surrogate(
    p: np.ndarray, q: np.ndarray, step: np.ndarray, r: np.ndarray, mdp: dict[str, Any], b: int
) -> float:
    """Sum over t of E_roll[g_t], by stepping the law of states forward."""
    T = mdp["T"]
    values = [mdp["terminal"][b].numpy()]
    for _ in range(T):
        values.append((p * (r + values[-1][step])).sum(1))
    law, total = mdp["start"][b].numpy(), 0.0
    for t in range(T):
        total += float(law @ ((q - p) * (r + values[T - t - 1][step])).sum(1))
        after = np.zeros_like(law)
        np.add.at(after, step, law[:, None] * p)
        law = after
    return total


def check(found: MarkovQuantities, b: int, exact: dict[str, Any]) -> None:
    for name in (*RETURNS, "hel_cross", "hel_seq"):
        assert float(getattr(found, name)[b]) == pytest.approx(exact[name], abs=1e-13), name
    for name in MEANS:
        got = getattr(found, f"{name}_mean_t")[b].numpy()
        np.testing.assert_allclose(got, exact[f"{name}_mean_t"], rtol=1e-9, atol=1e-13)
        total = "kl_seq" if name == "kl" else f"{name}_mean"
        scale = 1 if name == "kl" else found.T[b]
        assert float(getattr(found, total)[b] * scale) == pytest.approx(got.sum(), rel=1e-9)
    for name in MAXIMA:
        np.testing.assert_allclose(
            getattr(found, f"{name}_max_t")[b], exact[f"{name}_max_t"], rtol=1e-9, atol=1e-13
        )
        assert float(getattr(found, f"{name}_max")[b]) == float(
            getattr(found, f"{name}_max_t")[b].max()
        )
    assert found.tv_seq_low[b] <= exact["tv_seq"] * (1 + 1e-9) + 1e-13
    assert exact["tv_seq"] <= found.tv_seq_high[b] * (1 + 1e-9) + 1e-13
    if torch.isfinite(found.chi2_mean[b]):
        assert float(found.oracle_high[b]) == pytest.approx(
            exact["oracle_high"], rel=1e-8, abs=1e-12
        )


@settings(max_examples=25)
@given(
    S=st.integers(1, 3),
    A=st.integers(2, 3),
    T=st.integers(1, 4),
    seed=st.integers(0, 10**6),
    scale=st.floats(1e-3, 2.0),
    sparse=st.booleans(),
)
def test_equals_enumeration_of_all_paths(
    S: int, A: int, T: int, seed: int, scale: float, sparse: bool
) -> None:
    mdp = instance(2, S, A, T, seed=seed, scale=scale, sparse=sparse)
    found = markov_quantities(**mdp, per_position=True)
    for b in range(2):
        check(found, b, enumerated(mdp, b))


@pytest.mark.parametrize("sparse", [False, True])
def test_every_bound_is_at_least_the_error(sparse: bool) -> None:
    mdp = instance(200, 4, 5, 30, scale=0.3, sparse=sparse)
    for per_position in (False, True):
        found = markov_quantities(**mdp, per_position=per_position)
        assert found.error is not None
        if not sparse:
            assert bool((found.oracle_high * (1 + 1e-9) >= found.error.abs()).all())
        checked = 0
        for entry in evaluate(**found.inputs()):
            if entry.value is not None and entry.certified and entry.bound.role != "oracle":
                assert bool((entry.value * (1 + 1e-9) + 1e-13 >= found.error.abs()).all()), (
                    entry.name
                )
                checked += 1
        assert checked > 20


@pytest.mark.parametrize(("S", "A", "T"), [(1, 2, 7), (3, 5, 64), (6, 3, 701), (4, 7, 2000)])
def test_doubling_equals_the_loop(S: int, A: int, T: int) -> None:
    mdp = instance(3, S, A, T, scale=1 / T**0.5, sparse=S == 6)
    loop, twice = (markov_quantities(**mdp, method=m) for m in ("loop", "doubling"))  # type: ignore[arg-type]
    for name in SCALARS:
        one, two = getattr(loop, name), getattr(twice, name)
        torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-15, msg=name)


@pytest.mark.parametrize("method", ["loop", "doubling"])
def test_a_million_tokens(method: str) -> None:
    """Closed forms when tokens are independent: one state, or copies of one."""
    T = 10**6 if method == "doubling" else 700
    p, q = np.array([0.3, 0.7]), np.array([0.3004, 0.6996])
    found = markov_quantities(
        torch.tensor(p).log().expand(1, 3, 2).clone(),
        torch.tensor(q).log().expand(1, 3, 2).clone(),
        torch.tensor([[[1, 2], [0, 2], [1, 0]]]),
        T=T,
        terminal=torch.tensor([[0.0, 1.0, 0.5]], dtype=torch.float64),
        method=method,  # type: ignore[arg-type]
    )
    h, x = ((np.sqrt(q) - np.sqrt(p)) ** 2).sum(), ((q - p) ** 2 / p).sum()
    assert float(found.hel_seq) == pytest.approx(-2 * np.expm1(T * np.log1p(-h / 2)), rel=1e-9)
    assert float(found.kl_seq) == pytest.approx(T * (p * np.log(p / q)).sum(), rel=1e-7)
    # sum over t of h E u^2, and E u^2 = 2 - 2 (1 - h/2)^(t-1)
    deficits = -2 * np.expm1(np.arange(T) * np.log1p(-h / 2))
    assert float(found.hel_cross) == pytest.approx(h * deficits.sum(), rel=1e-8)
    exact = float(mpmath.expm1(T * mpmath.log1p(x)) - T * mpmath.mpf(float(x)))
    assert float(found.oracle_high) == pytest.approx(0.5 * exact**0.5, rel=1e-7)


def test_tiny_divergences_keep_their_digits() -> None:
    """Log-probs that differ by 1e-9, against mpmath at 60 digits."""
    mdp = instance(1, 2, 3, 4, scale=0.0)
    shift = torch.tensor([[[3, -1, 2], [-2, 1, 4]]], dtype=torch.float64)
    mean = (mdp["log_roll"].exp() * shift).sum(-1, keepdim=True)
    mdp["log_theta"] = mdp["log_roll"] + 1e-9 * (shift - mean)
    with mpmath.workdps(60):
        exact = _by_mpmath(mdp)
        for method in ("loop", "doubling"):
            found = markov_quantities(**mdp, method=method)  # type: ignore[arg-type]
            for name, value in exact.items():
                assert float(getattr(found, name)) == pytest.approx(float(value), rel=2e-6), name


def _by_mpmath(mdp: dict[str, Any]) -> dict[str, Any]:
    mp = mpmath.mpf
    T, S, A = mdp["T"], *mdp["log_roll"].shape[1:]

    def number(name: str, *at: int) -> Any:
        return mp(float(mdp[name][(0, *at)]))

    p = [[mpmath.exp(number("log_roll", s, a)) for a in range(A)] for s in range(S)]
    q = [[mpmath.exp(number("log_theta", s, a)) for a in range(A)] for s in range(S)]
    for rows in (p, q):
        for s in range(S):
            total = sum(rows[s])
            rows[s] = [value / total for value in rows[s]]
    out = dict.fromkeys(("error", "oracle_high", "hel_seq", "hel_cross", "kl_seq"), mp(0))
    for first in range(S):
        for tokens in itertools.product(range(A), repeat=T):
            s, a, c = first, number("start", first), number("start", first)
            linear, R = mp(0), mp(0)
            for t, y in enumerate(tokens):
                h = sum(
                    (mpmath.sqrt(u) - mpmath.sqrt(v)) ** 2 for u, v in zip(p[s], q[s], strict=True)
                )
                share = mp(A) ** (t - T)
                out["hel_cross"] += share * h * (mpmath.sqrt(a) - mpmath.sqrt(c)) ** 2
                linear += q[s][y] / p[s][y] - 1
                R += number("reward", s, y)
                a, c, s = a * p[s][y], c * q[s][y], int(mdp["next_state"][0, s, y])
            W = c / a - 1 - linear
            out["error"] += a * W * (R + number("terminal", s))
            out["oracle_high"] += a * W**2
            out["hel_seq"] += (mpmath.sqrt(a) - mpmath.sqrt(c)) ** 2
            out["kl_seq"] += a * mpmath.log(a / c)
    out["oracle_high"] = mpmath.sqrt(out["oracle_high"]) / 2
    return out


@pytest.mark.parametrize(("S", "A", "T"), [(2, 3, 20), (5, 3, 12), (3, 17, 100), (7, 70, 200)])
@pytest.mark.parametrize("method", ["loop", "doubling"])
def test_batch_and_single_agree_to_the_bit(S: int, A: int, T: int, method: str) -> None:
    mdp = instance(37, S, A, T, scale=0.1)
    together = markov_quantities(**mdp, method=method)  # type: ignore[arg-type]
    for b in (0, 17, 36):
        one = {k: v[b : b + 1] if isinstance(v, torch.Tensor) else v for k, v in mdp.items()}
        alone = markov_quantities(**one, method=method)  # type: ignore[arg-type]
        for name in SCALARS:
            assert torch.equal(getattr(alone, name), getattr(together[b : b + 1], name)), name


def test_theta_without_a_token_of_roll_makes_kl_infinite_and_tv_finite() -> None:
    roll = torch.tensor([[[0.5, 0.5], [0.25, 0.75]]], dtype=torch.float64).log()
    theta = torch.tensor([[[1.0, 0.0], [0.5, 0.5]]], dtype=torch.float64).log()
    step = torch.tensor([[[0, 0], [1, 1]]])
    found = markov_quantities(roll, theta, step, T=3, per_position=True)
    assert float(found.kl_seq) == float(found.kl_max) == float("inf")
    assert bool(torch.isinf(found.kl_mean_t).all())  # type: ignore[arg-type]
    assert float(found.tv_max) == 0.5
    assert float(found.tv_seq_high) <= 1
    # from state 1 the divergence of state 0 is never met
    apart = markov_quantities(roll, theta, step, T=3, start=torch.tensor([1]))
    assert np.isfinite(float(apart.kl_seq))
    assert float(apart.tv_max) == 0.25
    # and the other way round chi2 is infinite
    swapped = markov_quantities(theta, roll, step, T=3)
    assert float(swapped.chi2_mean) == float(swapped.oracle_high) == float("inf")
    assert np.isfinite(float(swapped.kl_seq))


def test_overflow_is_reported_as_infinite_not_as_nan() -> None:
    mdp = instance(4, 3, 3, 20000, scale=2.0)
    found = markov_quantities(**mdp)
    assert bool(torch.isinf(found.oracle_high).all())
    for name in SCALARS:
        assert not bool(torch.isnan(getattr(found, name)).any()), name


@pytest.mark.parametrize("T", [3, 50])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"log_roll": torch.zeros(2, 3, 4, dtype=torch.float64)},
            "log_roll, row 0, state 0.*sum to 4",
        ),
        ({"log_theta": torch.zeros(2, 3, 4)}, "log_theta is torch.float32"),
        ({"next_state": torch.full((2, 3, 4), 3)}, r"next_state\[0, 0, 0\] is 3"),
        ({"start": torch.tensor([0, -1])}, r"start\[1\] is -1"),
        ({"start": torch.full((2, 3), 0.5, dtype=torch.float64)}, "start, row 0"),
        ({"reward": torch.ones(2, 3, 4, dtype=torch.float64)}, "reward, row 0.*earns"),
        ({"terminal": -torch.ones(2, 3, dtype=torch.float64)}, "reward, row 0.*earns -"),
        ({"T": 0}, "T is 0"),
        ({"method": "fast"}, "method is 'fast'"),
    ],
)
def test_bad_input_is_refused_in_one_line(T: int, change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        markov_quantities(**{**instance(2, 3, 4, T), **change})
    assert "\n" not in str(caught.value)


def test_a_reward_that_no_policy_earns_is_free() -> None:
    mdp = instance(1, 2, 2, 3)
    closed = torch.tensor([[[0.0, -torch.inf], [0.0, -torch.inf]]], dtype=torch.float64)
    mdp |= {"log_roll": closed, "log_theta": closed}
    mdp["reward"][:, :, 1] = torch.inf
    found = markov_quantities(**mdp)
    assert float(found.error) == 0.0  # type: ignore[arg-type]


def test_intervals_cover_the_enumerated_truth() -> None:
    mdp = instance(12, 3, 3, 5, scale=0.7)
    arguments = {k: v for k, v in mdp.items() if k not in ("reward", "terminal")}
    found = markov_monte_carlo(**arguments, n=20000, seed=1, level=0.999)
    for b in range(12):
        exact = enumerated(mdp, b)
        assert found.tv_seq.low[b] <= exact["tv_seq"] <= found.tv_seq.high[b]
        assert found.oracle.low[b] <= exact["oracle"] <= found.oracle.high[b]
        assert float(found.oracle.mean[b]) == pytest.approx(exact["oracle"], rel=0.1)


@pytest.mark.parametrize("gap", [0.001, 0.1])
def test_intervals_cover_the_exact_iid_value_in_both_regimes(gap: float) -> None:
    roll = torch.tensor([[0.3, 0.7]], dtype=torch.float64).log()
    theta = torch.tensor([[0.3 + gap, 0.7 - gap]], dtype=torch.float64).log()
    step = torch.zeros((1, 1, 2), dtype=torch.int64)
    exact = iid_quantities(roll, theta, 300)
    covered = 0
    for seed in range(6):
        found = markov_monte_carlo(
            roll[:, None], theta[:, None], step, T=300, n=2000, seed=seed, level=0.9
        )
        covered += int(found.oracle.low <= exact.oracle <= found.oracle.high)
        covered += int(found.tv_seq.low <= exact.tv_seq <= found.tv_seq.high)
        assert float(found.oracle.high - found.oracle.low) < 2 * float(exact.oracle)
    assert covered >= 10


def test_same_seed_same_bits() -> None:
    mdp = instance(3, 4, 40, 20)
    arguments = {k: v for k, v in mdp.items() if k not in ("reward", "terminal")}
    one, two = (markov_monte_carlo(**arguments, n=100, seed=5) for _ in range(2))
    assert torch.equal(one.oracle.value, two.oracle.value)
    assert torch.equal(one.tv_seq.low, two.tv_seq.low)


def test_huge_ratios_do_not_spoil_the_estimate() -> None:
    mdp = instance(2, 2, 2, 3000, scale=3.0)
    arguments = {k: v for k, v in mdp.items() if k not in ("reward", "terminal")}
    found = markov_monte_carlo(**arguments, n=200, seed=0)
    assert bool(torch.isfinite(found.oracle.mean).all())
    assert bool((found.oracle.low <= found.oracle.value).all())
    assert bool((found.oracle.value <= found.oracle.high).all())


def test_catoni_covers_a_heavy_tail() -> None:
    """Pareto with tail index 2.2: the interval holds though the sample variance is unstable."""
    g = torch.Generator().manual_seed(0)
    z = torch.rand((400, 500), generator=g, dtype=torch.float64) ** (-1 / 2.2)
    mean, variance = 2.2 / 1.2, 2.2 / (1.2**2 * 0.2)
    ones = torch.ones(400, dtype=torch.float64)
    found = catoni(z, variance * ones, 0.95, 0 * ones, torch.inf * ones)
    inside = (found.low <= mean) & (mean <= found.high)
    assert float(inside.double().mean()) >= 0.95


def test_bad_options_are_refused() -> None:
    mdp = instance(1, 2, 3, 4)
    arguments = {k: v for k, v in mdp.items() if k not in ("reward", "terminal")}
    with pytest.raises(InputError, match="n is 5"):
        markov_monte_carlo(**arguments, n=5, seed=0)
    with pytest.raises(InputError, match="level is 2"):
        markov_monte_carlo(**arguments, n=500, seed=0, level=2)
    arguments["log_roll"] = torch.tensor([0.5, 0.5, 0.0]).double().log().expand(1, 2, 3).clone()
    with pytest.raises(InputError, match="row 0: theta has mass"):
        markov_monte_carlo(**arguments, n=500, seed=0)
