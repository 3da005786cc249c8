"""No registered bound is below the exact worst-case error: full enumeration of random trees."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bounds import registry
from bounds.evaluate import evaluate

#: float64 rounding of sums over at most 3^4 leaves.
SLACK = 1e-12


def quantities(T: int, V: int, seed: int, scale: float, rare: bool) -> dict[str, object]:
    """Exact divergences, Oracle and one reward's |Error| of a random tree, by enumeration."""
    rng = np.random.default_rng(seed)
    prefix_roll, prefix_theta = np.ones(1), np.ones(1)
    linear = np.zeros(1)
    ratios = np.ones(1)
    columns: dict[str, list[float]] = {
        f"{kind}_{which}_t": [] for kind in ("kl", "tv", "chi2", "hel") for which in ("mean", "max")
    }
    columns["quartic_mean_t"] = []
    cross = 0.0
    for _ in range(T):
        logits = rng.normal(size=(len(prefix_roll), V)) * (3.0 if rare else 1.0)
        noise = scale * rng.normal(size=logits.shape)
        if rare:
            noise *= rng.random((len(prefix_roll), 1)) < 0.2
        p = np.exp(logits - np.logaddexp.reduce(logits, axis=1)[:, None])
        shifted = logits + noise
        q = np.exp(shifted - np.logaddexp.reduce(shifted, axis=1)[:, None])
        token = {
            "kl": (p * np.log(p / q)).sum(1).clip(0),
            "tv": np.abs(p - q).sum(1) / 2,
            "chi2": ((q - p) ** 2 / p).sum(1),
            "hel": ((np.sqrt(q) - np.sqrt(p)) ** 2).sum(1),
        }
        columns["quartic_mean_t"].append(
            float(prefix_roll @ (p * (np.sqrt(q / p) - 1) ** 4).sum(1))
        )
        cross += float(((np.sqrt(prefix_theta) - np.sqrt(prefix_roll)) ** 2) @ token["hel"])
        for name, values in token.items():
            columns[f"{name}_mean_t"].append(float(prefix_roll @ values))
            columns[f"{name}_max_t"].append(float(values.max()))
        rho = q / p
        linear = (linear[:, None] + rho - 1).ravel()
        ratios = (ratios[:, None] * rho).ravel()
        prefix_roll = (prefix_roll[:, None] * p).ravel()
        prefix_theta = (prefix_theta[:, None] * q).ravel()
    excess = ratios - 1 - linear
    reward = rng.random(len(excess))
    return {
        **{name: np.asarray(values) for name, values in columns.items()},
        "hel_cross": cross,
        "hel_seq": float(((np.sqrt(prefix_theta) - np.sqrt(prefix_roll)) ** 2).sum()),
        "tv_seq": float(np.abs(prefix_roll - prefix_theta).sum() / 2),
        "oracle": float(prefix_roll @ np.abs(excess) / 2),
        "error": float(abs(prefix_roll @ (excess * reward))),
        "mean_excess": float(prefix_roll @ excess),
    }


@settings(max_examples=150)
@given(
    T=st.integers(1, 4),
    V=st.integers(2, 3),
    seed=st.integers(0, 10**6),
    scale=st.floats(1e-3, 3.0),
    rare=st.booleans(),
)
def test_every_bound_is_at_least_the_oracle(
    T: int, V: int, seed: int, scale: float, rare: bool
) -> None:
    exact = quantities(T, V, seed, scale, rare)
    oracle, error = exact.pop("oracle"), exact.pop("error")
    assert abs(exact.pop("mean_excess")) < 1e-10  # type: ignore[arg-type]
    assert error <= oracle + SLACK  # type: ignore[operator]
    # what is left out is derived from the rest by the rules: the bounds must still hold
    for left_out in ((), ("tv_seq",), ("hel",), ("hel", "tv_seq"), ("hel", "chi2"), ("kl",)):
        inputs = {k: v for k, v in exact.items() if not k.startswith(left_out or ("none",))}
        for entry in evaluate(validate=False, **inputs):
            if entry.value is not None and entry.bound.role != "oracle":
                assert entry.certified or left_out
                if not entry.certified:
                    continue
                assert float(entry.value) >= oracle * (1 - 1e-9) - SLACK, entry.name


def test_half_of_the_oracle_would_be_caught() -> None:
    """The check above can fail: some instance comes within a factor 2 of a bound."""
    closest = 0.0
    for seed in range(60):
        exact = quantities(3, 2, seed, 2.0, False)
        oracle = exact.pop("oracle")
        for key in ("error", "mean_excess"):
            exact.pop(key)
        least = evaluate(["unified-ours"], validate=False, **exact)["unified-ours"].value
        closest = max(closest, oracle / float(least))  # type: ignore[operator]
    assert 0.5 < closest <= 1


@pytest.mark.parametrize("name", [b.name for b in registry.all_bounds() if b.role == "bound"])
def test_equal_policies_cost_nothing(name: str) -> None:
    zeros = {
        f"{kind}_{which}_t": np.zeros(5)
        for kind in ("kl", "tv", "chi2")
        for which in ("mean", "max")
    }
    assert float(evaluate([name], **zeros)[name].value) == 0
