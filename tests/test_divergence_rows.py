"""Exact row divergences against 50-digit arithmetic.

Stated accuracy: 1e-12 relative for KL both ways, TV and entropy on ordinary, masked and one-hot
rows; 1e-8 on float64 rows so close that KL is about 1e-12, where the last bit of the logits shows.
"""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest

from bounds.errors import InputError
from simulations.divergence_rows import COLUMNS, divergence_rows

INF = math.inf


def _laws(row: np.ndarray) -> list[mp.mpf]:
    top = mp.mpf(float(row.max()))
    mass = [mp.e ** (mp.mpf(float(z)) - top) if z > -INF else mp.mpf(0) for z in row]
    return [m / mp.fsum(mass) for m in mass]


def _kl(p: list[mp.mpf], q: list[mp.mpf]) -> mp.mpf:
    if any(a > 0 and b == 0 for a, b in zip(p, q, strict=True)):
        return mp.inf
    return mp.fsum(a * mp.log(a / b) for a, b in zip(p, q, strict=True) if a > 0)


def _reference(rollout: np.ndarray, train: np.ndarray) -> dict[str, float]:
    """The same columns at 50 digits, from the definitions, for one row ``[V]``."""
    with mp.workdps(50):
        p, q = _laws(rollout), _laws(train)
        pairs = list(zip(p, q, strict=True))
        lone = any(a == 0 and b > 0 for a, b in pairs)
        apart = lone or any(a > 0 and b == 0 for a, b in pairs)
        gaps = [
            mp.mpf(float(a)) - mp.mpf(float(b))
            for a, b in zip(rollout, train, strict=True)
            if a > -INF and b > -INF
        ]
        values = {
            "kl": _kl(p, q),
            "kl_reverse": _kl(q, p),
            "tv": mp.fsum(abs(a - b) for a, b in pairs) / 2,
            "chi2": mp.inf if lone else mp.fsum((b - a) ** 2 / a for a, b in pairs if a > 0),
            "logit_half_range": mp.inf if apart else (max(gaps) - min(gaps)) / 2,
            "rollout_argmax_logprob": mp.log(max(p)),
            "train_argmax_logprob": mp.log(max(q)),
            "rollout_entropy": -mp.fsum(a * mp.log(a) for a in p if a > 0),
        }
        return {name: float(value) for name, value in values.items()}


def _check(rollout: np.ndarray, train: np.ndarray, rel: float, floor: float = 0.0) -> None:
    """Every real column of every row within ``rel``; ``floor`` nats absolute for log-probs."""
    got = divergence_rows(rollout, train)
    for t, (a, b) in enumerate(zip(rollout, train, strict=True)):
        for name, want in _reference(a, b).items():
            slack = 1e-15 if name.endswith(("logprob", "half_range")) else floor
            assert got[name][t] == pytest.approx(want, rel=rel, abs=slack), (name, t)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [0.01, 1.0, 5.0])
def test_random_rows(dtype: type, scale: float) -> None:
    rng = np.random.default_rng(7)
    rollout: np.ndarray = rng.normal(scale=4.0, size=(9, 300)).astype(dtype)
    train: np.ndarray = (rollout + rng.normal(scale=scale, size=rollout.shape)).astype(dtype)
    _check(rollout, train, rel=1e-12)


def test_log_probs_and_a_common_shift_change_nothing() -> None:
    rng = np.random.default_rng(1)
    rollout = rng.normal(scale=3.0, size=(5, 64))
    train = rng.normal(scale=3.0, size=(5, 64))
    plain = divergence_rows(rollout, train)
    shifted = divergence_rows(rollout + 8.0, train - 4.0)
    for name in COLUMNS:
        np.testing.assert_allclose(plain[name], shifted[name], rtol=1e-12)


def test_near_identical_rows_keep_their_digits() -> None:
    rng = np.random.default_rng(3)
    rollout = rng.normal(scale=3.0, size=(6, 400))
    train = rollout + rng.normal(scale=1e-6, size=rollout.shape)
    got = divergence_rows(rollout, train)
    assert (got["kl"] > 1e-14).all()
    assert (got["kl"] < 1e-11).all()
    for t in range(len(rollout)):
        want = _reference(rollout[t], train[t])
        for name in ("kl", "kl_reverse", "tv", "chi2"):
            assert got[name][t] == pytest.approx(want[name], rel=1e-8), name


def test_identical_rows_have_no_divergence() -> None:
    rows = np.random.default_rng(0).normal(scale=9.0, size=(4, 128)).astype(np.float32)
    got = divergence_rows(rows, rows.copy())
    for name in ("kl", "kl_reverse", "tv", "chi2", "logit_half_range"):
        assert (got[name] == 0.0).all(), name
    assert got["argmax_agree"].all()


def test_divergences_are_never_negative() -> None:
    rng = np.random.default_rng(11)
    rollout = rng.normal(scale=10.0, size=(40, 97)).astype(np.float32)
    for step in (1e-7, 1e-4, 1e-1, 30.0):
        got = divergence_rows(rollout, rollout + np.float32(step) * rng.normal(size=rollout.shape))
        for name in ("kl", "kl_reverse", "tv", "chi2", "logit_half_range"):
            assert (got[name] >= 0.0).all(), name
        assert (got["tv"] <= 1.0).all()


def test_shared_mask_is_ignored() -> None:
    rng = np.random.default_rng(5)
    rollout = rng.normal(size=(3, 50))
    train = rollout + 0.1 * rng.normal(size=rollout.shape)
    rollout[:, ::2] = train[:, ::2] = -INF
    _check(rollout, train, rel=1e-12)
    kept = divergence_rows(rollout[:, 1::2], train[:, 1::2])
    masked = divergence_rows(rollout, train)
    np.testing.assert_allclose(kept["kl"], masked["kl"], rtol=1e-12)


def test_mass_on_one_side_only() -> None:
    full = np.array([[0.0, 1.0, -1.0, 0.5]])
    cut = np.array([[0.1, 0.9, -INF, -INF]])
    missing_in_train = divergence_rows(full, cut)
    assert missing_in_train["kl"][0] == INF
    assert missing_in_train["logit_half_range"][0] == INF
    _check(full, cut, rel=1e-12)  # reverse KL, TV and chi-square stay finite
    missing_in_roll = divergence_rows(cut, full)
    assert missing_in_roll["kl_reverse"][0] == missing_in_roll["chi2"][0] == INF
    _check(cut, full, rel=1e-12)
    disjoint = divergence_rows(np.array([[0.0, -INF]]), np.array([[-INF, 0.0]]))
    assert disjoint["tv"][0] == 1.0
    assert disjoint["kl"][0] == disjoint["kl_reverse"][0] == disjoint["chi2"][0] == INF


def test_one_hot_rows() -> None:
    hard = np.array([[0.0, -INF, -INF]])
    _check(hard, hard, rel=1e-12)
    # almost one-hot: 1 - p is 1e-13, so log p of the argmax lives below float64's epsilon at 1
    soft = np.zeros((2, 6))
    soft[:, 0] = 30.0
    softer = soft.copy()
    softer[:, 0] = [29.0, 20.0]
    _check(soft, softer, rel=1e-10)
    assert (divergence_rows(soft, softer)["rollout_argmax_logprob"] < 0).all()


def test_huge_logits() -> None:
    rollout = np.array([[1e4, 0.0, -1e4, 9999.0], [3e4, 3e4, 0.0, -3e4]])
    train = np.array([[1e4, 5.0, -1e4, 9998.0], [3e4, 2.9e4, 0.0, -2e4]])
    got = divergence_rows(rollout, train)
    for name in COLUMNS:
        assert not np.isnan(got[name]).any(), name
    for t in range(2):
        want = _reference(rollout[t], train[t])
        for name in ("kl", "kl_reverse", "tv"):
            assert got[name][t] == pytest.approx(want[name], rel=1e-10), name


def test_mass_below_the_smallest_float_is_not_lost() -> None:
    # roll's second token has probability exp(-900): it underflows, the train side's does not
    rollout, train = np.array([[0.0, -900.0]]), np.array([[0.0, 0.0]])
    got, want = divergence_rows(rollout, train), _reference(rollout[0], train[0])
    for name in ("kl", "kl_reverse", "tv"):
        assert got[name][0] == pytest.approx(want[name], rel=1e-12), name


def test_chi2_of_a_far_tail_token() -> None:
    # p = exp(-2000), q = exp(-1000): both underflow, yet q^2 / p is 1
    rollout, train = np.array([[0.0, -2000.0]]), np.array([[0.0, -1000.0]])
    assert divergence_rows(rollout, train)["chi2"][0] == pytest.approx(1.0, rel=1e-10)


def test_chunks_do_not_change_the_result() -> None:
    rng = np.random.default_rng(2)
    rollout, train = rng.normal(size=(2, 37, 20))
    whole, parts = (
        divergence_rows(rollout, train, chunk=37),
        divergence_rows(rollout, train, chunk=4),
    )
    for name in COLUMNS:
        np.testing.assert_array_equal(whole[name], parts[name])


def test_argmax_columns() -> None:
    got = divergence_rows(np.array([[0.0, 2.0], [0.0, 2.0]]), np.array([[0.0, 1.0], [3.0, 1.0]]))
    assert got["argmax_agree"].tolist() == [True, False]


@pytest.mark.parametrize(
    ("rollout", "train"),
    [
        (np.zeros((2, 3)), np.zeros((2, 4))),
        (np.zeros(3), np.zeros(3)),
        (np.zeros((0, 3)), np.zeros((0, 3))),
        (np.full((1, 3), np.nan), np.zeros((1, 3))),
        (np.zeros((1, 2)), np.array([[INF, 0.0]])),
        (np.full((1, 3), -INF), np.zeros((1, 3))),
    ],
)
def test_bad_rows_are_refused(rollout: np.ndarray, train: np.ndarray) -> None:
    with pytest.raises(InputError):
        divergence_rows(rollout, train)
