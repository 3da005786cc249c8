"""Generated numeric evaluation against mpmath: direct and Euler-Maclaurin sums, 1e-12 relative."""

from __future__ import annotations

from itertools import accumulate

import mpmath as mp
import numpy as np
import pytest
import sympy as sp
import torch
from hypothesis import given
from hypothesis import strategies as st

from bounds import quantities as q
from bounds import registry
from bounds.compile import Positions, evaluate_expression
from bounds.evaluate import evaluate
from bounds.special import binomial_excess, power_sum, sum_of_least_power

TOLERANCE = 1e-12
SCALARS = {
    "kl_max": 3e-4,
    "tv_max": 0.011,
    "kl_seq": 0.02,
    "tv_seq": 0.06,
    "chi2_max": 5e-4,
    "chi2_mean": 2e-4,
    "hel_max": 2e-4,
    "hel_mean": 5e-5,
    "quartic_mean": 3e-9,
    "hel_seq": 0.004,
    "hel_cross": 2e-5,
}
PER_POSITION = {
    "kl_max_t": 2.5e-4,
    "tv_max_t": 0.009,
    "tv_mean_t": 0.004,
    "kl_mean_t": 1e-4,
    "chi2_max_t": 4e-4,
    "chi2_mean_t": 2e-4,
    "hel_max_t": 1.5e-4,
}
BOUNDS = [b.name for b in registry.all_bounds() if b.role == "bound"]


def reference(name: str, T: int, values: dict[str, object]) -> mp.mpf:
    """The registry's formulas, written out here a second time in mpmath by direct summation."""
    with mp.workdps(40):
        v = {
            k: [mp.mpf(float(e)) for e in x] if np.ndim(x) else mp.mpf(x) for k, x in values.items()
        }
        d, e, K = v["kl_max"], v["tv_max"], v["kl_seq"]
        tv, x, X = v["tv_seq"], v["chi2_max"], v["chi2_mean"]
        at = {k: (v[k] if isinstance(v[k], list) else [v[k]] * T) for k in PER_POSITION}
        one = mp.mpf(1)
        base, sharp = name.removesuffix("-sharp"), name.endswith("-sharp")
        half = one / 2 if sharp else one

        def marginal() -> mp.mpf:
            return mp.fsum(min(one, mp.sqrt(k * d / 2)) for k in range(T))

        if base == "classical-tv" or base == "coupling-small":
            return half * 2 * T * (T - 1) * e**2
        if base == "classical-kl":
            return half * 2 * T * (T - 1) * min(one, d / 2)
        if base == "classical-kl-small":
            return half * T * (T - 1) * d
        if base == "pinsker-marginal-kl":
            return half * 4 * min(one, mp.sqrt(d / 2)) * marginal()
        if base == "pinsker-marginal-tv":
            return half * 4 * e * marginal()
        if base == "pinsker-marginal-kl-small":
            return half * mp.mpf(4) / 3 * mp.mpf(T) ** 1.5 * d
        if base == "mixed-kl":
            return half * 4 * T * min(one, mp.sqrt(d / 2)) * min(one, mp.sqrt(K / 2))
        if base == "mixed-tv":
            return half * 4 * T * e * tv
        if base == "mixed-kl-small":
            return half * 2 * T * mp.sqrt(d * K)
        if base == "coupling":
            return half * 4 * e * mp.fsum(min(one, k * e) for k in range(T))
        if base == "adaptive":
            return (
                half
                * 4
                * mp.fsum(
                    at["tv_mean_t"][i] * min(one, (T - 1 - i) * e, mp.sqrt((T - 1 - i) * d / 2))
                    for i in range(T)
                )
            )

        def past(u: list[mp.mpf]) -> list[mp.mpf]:
            return [mp.mpf(0), *accumulate(u)][:T]

        def future(u: list[mp.mpf]) -> list[mp.mpf]:
            return past(u[::-1])[::-1]

        if base == "pinsker-marginal-positionwise":
            return 2 * mp.fsum(
                a * min(one, mp.sqrt(b / 2))
                for a, b in zip(at["tv_max_t"], past(at["kl_max_t"]), strict=True)
            )
        if base == "coupling-positionwise":
            return 2 * mp.fsum(
                a * min(one, b) for a, b in zip(at["tv_max_t"], past(at["tv_max_t"]), strict=True)
            )
        if base == "adaptive-positionwise":
            return 2 * mp.fsum(
                a * min(one, b, mp.sqrt(c / 2))
                for a, b, c in zip(
                    at["tv_mean_t"], future(at["tv_max_t"]), future(at["kl_max_t"]), strict=True
                )
            )
        if base == "martingale-chi2":
            return mp.sqrt((1 + x) ** T - 1 - T * x) / 2
        if base == "martingale-chi2-positionwise":
            total, growth = mp.mpf(0), one
            for u in at["chi2_max_t"]:
                total += u * (growth - 1)
                growth *= 1 + u
            return mp.sqrt(total) / 2
        if base == "square-root":
            return min(one, tv) + mp.sqrt(T * X) / 2
        quartic = mp.sqrt(T * v["quartic_mean"]) / 2
        if base in ("hellinger-max", "hellinger-interpolating"):
            affinity, cross = one, mp.mpf(0)
            for u in at["hel_max_t"]:
                cross += u * 2 * (1 - affinity)
                affinity *= 1 - u / 2
            rest = mp.fsum(at["hel_max_t"]) if base == "hellinger-max" else quartic
            return 2 * (1 - affinity) + mp.sqrt(cross) + rest
        if base in ("hellinger-means", "hellinger-means-quartic"):
            rest = T * v["hel_mean"] if base == "hellinger-means" else quartic
            return v["hel_seq"] + mp.sqrt(v["hel_cross"]) + rest
        if base == "cauchy-schwarz":
            return mp.fsum(
                mp.sqrt(a * b / 2)
                for a, b in zip(at["chi2_mean_t"], future(at["kl_mean_t"]), strict=True)
            )
        if base == "cauchy-schwarz-means":
            return mp.sqrt(T * X * (T - 1) * K / 2)
    raise AssertionError(f"{name} has no reference: write one")


def relative(value: float, truth: mp.mpf) -> float:
    if truth == 0:
        return abs(value)
    return float(abs(mp.mpf(value) / truth - 1))


@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize("T", [1, 2, 3, 64, 65, 700])
def test_matches_mpmath_with_scalars(name: str, T: int) -> None:
    value = evaluate([name], validate=False, T=T, **SCALARS, **PER_POSITION)[name].value
    assert relative(float(value), reference(name, T, {**SCALARS, **PER_POSITION})) < TOLERANCE


@pytest.mark.parametrize("name", BOUNDS)
def test_matches_mpmath_with_arrays(name: str) -> None:
    T, rng = 40, np.random.default_rng(0)
    arrays = {k: v * rng.uniform(0, 2, T) for k, v in PER_POSITION.items()}
    value = evaluate([name], validate=False, **SCALARS, **arrays)[name].value
    assert relative(float(value), reference(name, T, {**SCALARS, **arrays})) < TOLERANCE


@pytest.mark.parametrize("name", BOUNDS)
def test_torch_equals_numpy_and_stays_torch(name: str) -> None:
    T, rng = 17, np.random.default_rng(1)
    arrays = {k: v * rng.uniform(0, 2, (3, T)) for k, v in PER_POSITION.items()}
    plain = evaluate([name], validate=False, **SCALARS, **arrays)[name].value
    tensors = {k: torch.tensor(v) for k, v in arrays.items()}
    result = evaluate([name], validate=False, **SCALARS, **tensors)[name].value
    assert isinstance(result, torch.Tensor)
    assert result.dtype == torch.float64
    np.testing.assert_allclose(result.numpy(), plain, rtol=1e-14)


@given(
    T=st.integers(1, 120),
    kl=st.floats(1e-12, 20.0),
    tv=st.floats(1e-9, 1.0),
)
def test_capped_sums_match_direct_summation(T: int, kl: float, tv: float) -> None:
    values = {**SCALARS, **PER_POSITION, "kl_max": kl, "tv_max": tv}
    for name in ("pinsker-marginal-kl", "coupling", "adaptive"):
        value = evaluate([name], validate=False, T=T, **values)[name].value
        assert relative(float(value), reference(name, T, values)) < TOLERANCE


@pytest.mark.parametrize("T", [10**5, 10**6, 10**7])
@pytest.mark.parametrize("delta", [1e-12, 1e-7, 1e-4, 0.3])
def test_long_horizons_match_euler_maclaurin_at_40_digits(T: int, delta: float) -> None:
    """sum_k min(1, sqrt(k delta/2)) by mpmath's own Euler-Maclaurin summation."""
    with mp.workdps(40):
        d = mp.mpf(delta)
        crossing = min(T - 1, int(mp.floor(2 / d)))
        head = min(crossing, 1000)
        roots = mp.fsum(mp.sqrt(k) for k in range(1, head + 1))
        if crossing > head:
            roots += mp.sumem(mp.sqrt, [head + 1, crossing], tol=mp.mpf(10) ** -30)
        total = mp.sqrt(d / 2) * roots + (T - 1 - crossing)
        truth = 4 * mp.sqrt(d / 2) * total
        chi2 = mp.sqrt((1 + d) ** T - 1 - T * d) / 2
    value = evaluate(["pinsker-marginal-kl"], T=T, kl_max=delta)["pinsker-marginal-kl"].value
    assert relative(float(value), truth) < TOLERANCE
    martingale = float(evaluate(["martingale-chi2"], T=T, chi2_max=delta)["martingale-chi2"].value)
    if chi2 < mp.mpf(10) ** 150:
        assert relative(martingale, chi2) < TOLERANCE
    else:
        assert martingale == float("inf") or relative(martingale, chi2) < 1e-9


def test_long_horizon_takes_no_memory_in_T() -> None:
    import tracemalloc

    evaluate(["adaptive"], T=10**7, kl_max=1e-6)
    tracemalloc.start()
    evaluate(T=10**7, kl_max=1e-6, kl_seq=0.1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2e6


@given(n=st.integers(0, 400), p=st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.5]))
def test_power_sum(n: int, p: float) -> None:
    import array_api_compat.numpy as xp

    with mp.workdps(40):
        truth = mp.fsum(mp.mpf(k) ** p for k in range(1, n + 1))
    assert relative(float(power_sum(xp, np.asarray(float(n)), p)), truth) < 1e-14


@given(
    x=st.just(0.0) | st.floats(1e-30, 1e3),
    n=st.integers(1, 10**7),
)
def test_binomial_excess(x: float, n: int) -> None:
    import array_api_compat.numpy as xp

    with mp.workdps(120):
        truth = (1 + mp.mpf(x)) ** n - 1 - n * mp.mpf(x)
    value = float(binomial_excess(xp, np.asarray(x), np.asarray(float(n))))
    if truth > 1e300:
        assert value > 1e290
    elif truth < 1e-290:
        assert value < 1e-280
    else:
        assert relative(value, truth) < TOLERANCE


@given(
    n=st.integers(0, 200),
    c=st.lists(st.floats(0, 100), min_size=3, max_size=3),
)
def test_sum_of_least_power_matches_loop(n: int, c: list[float]) -> None:
    import array_api_compat.numpy as xp

    terms = [(np.asarray(a), p) for a, p in zip(c, (0.0, 0.5, 1.0), strict=True)]
    truth = sum(
        min(a * k**p for a, p in zip(c, (0.0, 0.5, 1.0), strict=True)) for k in range(1, n + 1)
    )
    value = float(sum_of_least_power(xp, np.asarray(float(n)), terms))
    assert value == pytest.approx(truth, rel=1e-12, abs=1e-300)


def test_a_sum_without_closed_form_falls_back_to_direct_summation() -> None:
    expression = sp.Sum(sp.log(1 + q.delta * q.t), (q.t, 1, q.T))
    horizon = np.asarray([1.0, 7.0, 3000.0])
    value = evaluate_expression(expression, {"T": horizon, "kl_max": np.asarray(0.25)})
    truth = [np.log1p(0.25 * np.arange(1, n + 1)).sum() for n in (1, 7, 3000)]
    np.testing.assert_allclose(value, truth, rtol=1e-13)


def test_oracle_is_half_the_mean_absolute_excess() -> None:
    rng = np.random.default_rng(2)
    log_ratio = rng.normal(scale=0.2, size=(6, 30))
    truth = np.mean([abs(np.exp(row.sum()) - 1 - np.expm1(row).sum()) for row in log_ratio]) / 2
    assert float(evaluate(["oracle"], log_ratio=log_ratio)["oracle"].value) == pytest.approx(truth)


def test_oracle_keeps_its_digits_when_ratios_are_nearly_one() -> None:
    log_ratio = np.full((1, 3), 1e-9)
    with mp.workdps(50):
        r = mp.e ** mp.mpf(1e-9)
        truth = abs(r**3 - 1 - 3 * (r - 1)) / 2
    assert relative(float(evaluate(["oracle"], log_ratio=log_ratio)["oracle"].value), truth) < 1e-14


def test_theta_without_mass_on_a_sampled_token_is_a_zero_ratio() -> None:
    log_ratio = np.asarray([[0.1, -np.inf, 0.2]])
    r = np.exp(log_ratio[0])
    truth = abs(np.prod(r) - 1 - np.sum(r - 1)) / 2
    assert float(evaluate(["oracle"], log_ratio=log_ratio)["oracle"].value) == pytest.approx(truth)


def test_million_points_broadcast() -> None:
    rng = np.random.default_rng(3)
    T, delta = rng.integers(1, 10**7, 10**6), 10 ** rng.uniform(-9, 0, 10**6)
    value = evaluate(["pinsker-marginal-kl"], T=T, kl_max=delta)["pinsker-marginal-kl"].value
    assert value.shape == (10**6,)
    one = evaluate(["pinsker-marginal-kl"], T=T[7], kl_max=delta[7])["pinsker-marginal-kl"].value
    assert value[7] == one


def test_mixed_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="differ in length"):
        evaluate_expression(
            registry.get("adaptive").expression,
            {
                "T": np.asarray(3.0),
                "kl_max": np.asarray(0.1),
                "tv_max": Positions(np.ones(2), False),
                "tv_mean_t": Positions(np.ones(3), False),
            },
        )
