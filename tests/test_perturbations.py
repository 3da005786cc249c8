"""Perturbation models against the properties that define them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bounds.errors import InputError
from simulations import rounding
from simulations.contexts import TreeShape
from simulations.instances import instance_generator, random_instances
from simulations.perturbations import PERTURBATIONS, get
from simulations.rewards import sparse_terminal, uniform, worst_case
from simulations.staleness import policy_gradient
from simulations.trees import leaf_weights, tree_quantities

SHAPE = TreeShape(3, 4)


def _logits(seed: int = 0, batch: int = 50, spread: float = 3.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    size = (batch, SHAPE.contexts, SHAPE.V)
    return spread * torch.randn(size, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("name", PERTURBATIONS)
def test_every_model_gives_two_policies_and_strength_zero_none_or_one(name: str) -> None:
    model = get(name)
    drawn = random_instances(SHAPE, 300, model=model, generator=instance_generator(3, 1))
    # raises if either side is no policy or a reward is out of range
    got = tree_quantities(drawn.log_roll, drawn.log_theta, drawn.reward, shape=SHAPE)
    differ = (drawn.log_roll == -torch.inf) != (drawn.log_theta == -torch.inf)
    assert bool(differ.any()) == model.supports_differ
    assert float(got.tv_max_t.max()) > 1e-4
    again = random_instances(SHAPE, 300, model=model, generator=instance_generator(3, 1))
    other = random_instances(SHAPE, 300, model=model, generator=instance_generator(3, 2))
    assert torch.equal(drawn.log_theta, again.log_theta)
    assert torch.equal(drawn.log_roll, again.log_roll)
    assert torch.equal(drawn.reward, again.reward)
    assert not torch.equal(drawn.log_theta, other.log_theta)
    if name != "rare-context":
        logits = _logits()
        same = model(
            logits,
            torch.zeros(50, dtype=torch.float64),
            generator=instance_generator(0, 0),
            shape=SHAPE,
        )
        assert torch.equal(same[0], same[1])


@settings(max_examples=50)
@given(st.integers(0, 10**6), st.floats(0.01, 100.0))
def test_formats_round_within_their_relative_error(seed: int, spread: float) -> None:
    values = _logits(seed, 2, spread)
    assert ((rounding.bf16(values) - values).abs() <= 2.0**-8 * values.abs()).all()
    normal = values.abs() > 2.0**-14
    error = (rounding.fp16(values) - values).abs()
    assert (error[normal] <= 2.0**-11 * values.abs()[normal]).all()
    normal = (values.abs() > 2.0**-6) & (values.abs() < 448)
    error = (rounding.fp8_e4m3(values) - values).abs()
    assert (error[normal] <= 2.0**-4 * values.abs()[normal]).all()
    scale = values.abs().amax(-1, keepdim=True) / 127
    assert ((rounding.int8(values) - values).abs() <= scale * (0.5 + 1e-12)).all()


@pytest.mark.parametrize("form", rounding.FORMATS)
def test_formats_keep_what_they_hold(form: str) -> None:
    held = torch.tensor([[127.0, -64.0, 0.0, 2.0]], dtype=torch.float64)
    if form == "fp8-e4m3":
        held = torch.tensor([[448.0, -0.5, 0.0, 1.75]], dtype=torch.float64)
    assert torch.equal(rounding.FORMATS[form](held), held)
    assert torch.isfinite(rounding.FORMATS[form](held * 1e6)).all()


@pytest.mark.parametrize("form", rounding.FORMATS)
def test_a_rounded_head_is_one_matrix_for_all_contexts(form: str) -> None:
    logits = _logits(batch=2)
    one = torch.ones(2, dtype=torch.float64)
    moved = rounding.rounded_weights(logits, one, instance_generator(0, 0), form)
    change = moved - logits
    # linear in the logits: with V = 4 tokens, 21 contexts have rank 4 at most
    stacked = torch.cat([logits, change], -1)[0]
    assert int(torch.linalg.matrix_rank(stacked, rtol=1e-10)) == SHAPE.V
    assert 0 < float(change.abs().max()) < 2 * float(logits.abs().max())


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.floats(1e-4, 3.0))
def test_logit_error_bounds_hold(seed: int, strength: float) -> None:
    logits = _logits(seed, 4)
    roll, theta = get("uniform")(
        logits,
        torch.full((4,), strength, dtype=torch.float64),
        generator=instance_generator(seed, 0),
        shape=SHAPE,
    )
    got = tree_quantities(roll, theta, shape=SHAPE)
    # theory, section 4: TV <= tanh(E/2), KL <= E^2/2, chi2 <= sinh(E)^2
    assert float(got.tv_max_t.max()) <= np.tanh(strength / 2)
    assert float(got.kl_max_t.max()) <= strength**2 / 2
    assert float(got.chi2_max_t.max()) <= np.sinh(strength) ** 2


def test_staleness_climbs_the_exact_gradient() -> None:
    shape = TreeShape(3, 3)
    generator = torch.Generator().manual_seed(4)
    logits = torch.randn(5, shape.contexts, 3, generator=generator, dtype=torch.float64)
    reward = uniform(shape, 5, generator)
    leaf = logits.clone().requires_grad_()
    policy = leaf.log_softmax(-1)
    value = tree_quantities(policy, policy, reward, shape=shape, validate=False).J_roll
    assert value is not None
    (wanted,) = torch.autograd.grad(value.sum(), leaf)
    torch.testing.assert_close(
        policy_gradient(logits, reward, shape=shape), wanted, atol=1e-14, rtol=1e-10
    )


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.floats(0.001, 0.6))
def test_truncation_keeps_the_right_tokens(seed: int, strength: float) -> None:
    logits = _logits(seed, 1)
    given_ = torch.tensor([strength], dtype=torch.float64)
    for name in ("top-p", "min-p"):
        roll, theta = get(name)(logits, given_, generator=instance_generator(0, 0), shape=SHAPE)
        for row, law in zip(roll[0], theta[0].exp(), strict=True):
            order = np.argsort(-law.numpy())
            if name == "min-p":
                kept = set(np.flatnonzero(law.numpy() >= strength * law.numpy().max()))
            else:
                total, kept = 0.0, set()
                for token in order:
                    kept.add(token)
                    total += float(law[token])
                    if total >= 1 - strength:
                        break
            assert set(np.flatnonzero(row.numpy() > -np.inf)) == kept
    got = tree_quantities(roll, theta, shape=SHAPE)
    assert torch.isfinite(got.kl_seq).all()


def test_rare_context_has_small_kl_seq_and_large_token_divergence() -> None:
    strength = torch.tensor([1e-2, 1e-5, 1e-8], dtype=torch.float64)
    roll, theta = get("rare-context")(
        _logits(1, 3, 0.5), strength, generator=instance_generator(0, 0), shape=SHAPE
    )
    got = tree_quantities(roll, theta, shape=SHAPE)
    assert (got.tv_max_t.amax(-1) > 0.99).all()
    assert (got.kl_max_t.amax(-1) > 5).all()
    torch.testing.assert_close(got.kl_seq, strength * got.kl_max_t.amax(-1), rtol=1e-6, atol=0.0)


def test_rewards() -> None:
    generator = torch.Generator().manual_seed(0)
    sparse = sparse_terminal(SHAPE, 500, generator, share=0.05)
    assert set(sparse.unique().tolist()) == {0.0, 1.0}
    assert (sparse.sum(-1) >= 1).all()
    assert 0.04 < float(sparse.mean()) < 0.08
    drawn = random_instances(SHAPE, 40, model=get("gaussian"), generator=instance_generator(0, 0))
    worst = worst_case(leaf_weights(drawn.log_roll, drawn.log_theta, shape=SHAPE).excess)
    got = tree_quantities(drawn.log_roll, drawn.log_theta, worst, shape=SHAPE)
    torch.testing.assert_close(got.error, got.oracle, rtol=1e-10, atol=1e-15)
    with pytest.raises(InputError, match="share"):
        sparse_terminal(SHAPE, 1, generator, share=0.0)


def test_bad_input_is_named() -> None:
    logits = _logits(batch=2)
    one = torch.ones(2, dtype=torch.float64)
    generator = instance_generator(0, 0)
    model = get("gaussian")
    with pytest.raises(InputError, match="known: gaussian"):
        get("gausian")
    with pytest.raises(InputError, match="needs"):
        model(logits[:, :-1], one, generator=generator, shape=SHAPE)
    with pytest.raises(InputError, match="strength"):
        model(logits, -one, generator=generator, shape=SHAPE)
    logits[1, 2, 3] = torch.nan
    with pytest.raises(InputError, match="instance 1, context 2, token 3"):
        model(logits, one, generator=generator, shape=SHAPE)
    with pytest.raises(InputError, match="seed -1"):
        instance_generator(-1, 0)
