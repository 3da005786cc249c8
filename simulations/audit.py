"""Audit of a rollout log: measured divergences, every bound at them, the Oracle, tightness.

Means over contexts come from a sample of sequences, and the largest divergence over visited
contexts can only be too low. So every number is an *estimate*, with a percentile bootstrap interval
over sequences (the unit that was drawn independently), and no bound here is certified. One number
apart is certified at a level, under assumptions that it names: the confidence bound on the Oracle
(:mod:`bounds.confidence`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd
from arviz_stats.base import array_stats

from bounds import registry
from bounds.compile import Positions, evaluate_expression, integrand
from bounds.confidence import OneSidedBound, oracle_upper_confidence
from bounds.errors import InputError
from bounds.evaluate import REWARD_RANGE, Evaluation, evaluate
from simulations.logs import RolloutLog, read_log

FloatArray = npt.NDArray[np.float64]
#: Floats in one bootstrap chunk.
_CHUNK: Final = 4_000_000
#: Edges of the bins of p = pi_roll(token) for the mismatch curve.
P_EDGES: Final = np.linspace(0.0, 1.0, 11)
#: PSIS needs a tail of at least this many points to be fitted at all.
_SMALL_SAMPLE: Final = 25


@dataclass(frozen=True)
class Estimate:
    """A number with its label and interval.

    Attributes:
        name: what it is.
        value: point estimate.
        low, high: percentile bootstrap interval over sequences; NaN when there is none.
        unit: nats, reward units or none.
        note: what a reader must know before using it.
        label: always ``"estimate"``: a log certifies nothing about contexts it did not visit.
    """

    name: str
    value: float
    low: float
    high: float
    unit: str = ""
    note: str = ""
    label: str = "estimate"


@dataclass(frozen=True)
class BoundEstimate:
    """A registry bound at the log's measured divergences.

    Attributes:
        name, title, owner, form: of the registry entry.
        value: reward units; None when inputs are missing.
        low, high: bootstrap interval of the value.
        tightness: Oracle / bound, with its interval ``tightness_low``, ``tightness_high``.
        status: ``estimate``, ``approximation`` or ``missing``.
        note: missing inputs, or a warning.
    """

    name: str
    title: str
    owner: str
    form: str
    value: float | None
    low: float
    high: float
    tightness: float
    tightness_low: float
    tightness_high: float
    status: str
    note: str = ""

    @property
    def vacuous(self) -> bool | None:
        """Whether the value exceeds the reward range."""
        return None if self.value is None else self.value > REWARD_RANGE


@dataclass(frozen=True)
class Audit:
    """Result of :func:`audit`; prints well.

    Attributes:
        log: name of the log.
        sequences, tokens, longest: its size; ``longest`` is T.
        exact_rows: whether divergences come from full rows (exact at visited contexts) or from
            sampled log-probs alone.
        confidence: level of the intervals.
        quantities: measured divergences.
        bounds: every registry bound.
        oracle: reward-free Oracle, 1/2 E_roll|W|, with interval.
        certificate: one-sided confidence bound on the Oracle at level ``confidence``, with what it
            rests on. It needs no estimate and no registry bound.
        khat: Pareto shape of the tail of \\|W\\| (PSIS), NaN when it cannot be fitted.
        khat_threshold: above it the Oracle's estimate and interval cannot be trusted.
        warnings: in plain words.
        curves: per-position and per-p tables for the figure.
        metadata: the log's own.
    """

    log: str
    sequences: int
    tokens: int
    longest: int
    exact_rows: bool
    confidence: float
    quantities: tuple[Estimate, ...]
    bounds: tuple[BoundEstimate, ...]
    oracle: Estimate
    certificate: OneSidedBound
    khat: float
    khat_threshold: float
    warnings: tuple[str, ...]
    curves: Mapping[str, pd.DataFrame]
    metadata: Mapping[str, str]

    def __getitem__(self, name: str) -> Estimate | BoundEstimate:
        entries: tuple[Estimate | BoundEstimate, ...] = (*self.quantities, *self.bounds)
        for entry in entries:
            if entry.name == name:
                return entry
        raise KeyError(f"the audit has no {name}")

    def to_pandas(self) -> pd.DataFrame:
        """The bounds as a table, one row a bound."""
        frame = pd.DataFrame([vars(entry) for entry in self.bounds])
        frame["vacuous"] = [entry.vacuous for entry in self.bounds]
        return frame

    def figure_arguments(self) -> dict[str, Any]:
        """Keyword arguments of :func:`figures.audit.audit_figure`, all but the title."""
        return {
            "curves": self.curves,
            "bounds": self.to_pandas(),
            "oracle": (self.oracle.value, self.oracle.low, self.oracle.high),
            "certificate": self.certificate.value,
            "confidence": self.confidence,
            "exact_rows": self.exact_rows,
        }

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready mapping; not-a-number and infinity become null."""

        def clean(value: Any) -> Any:
            if isinstance(value, float):
                return value if np.isfinite(value) else None
            return value

        def record(entry: Any) -> dict[str, Any]:
            return {key: clean(value) for key, value in vars(entry).items()}

        return {
            "log": self.log,
            "metadata": dict(self.metadata),
            "sequences": self.sequences,
            "tokens": self.tokens,
            "T": self.longest,
            "divergences": "exact at visited contexts" if self.exact_rows else "sampled log-probs",
            "kl_direction": "KL(roll || theta)",
            "confidence": self.confidence,
            "quantities": [record(entry) for entry in self.quantities],
            "oracle": record(self.oracle),
            "certificate": {
                "value": self.certificate.value,
                "label": self.certificate.label,
                "level": self.certificate.level,
                "if": list(self.certificate.assumptions),
                "n": self.certificate.n,
                "range": self.certificate.upper,
                "vacuous": self.certificate.value > REWARD_RANGE,
            },
            "pareto_khat": clean(self.khat),
            "pareto_khat_threshold": self.khat_threshold,
            "bounds": [{**record(entry), "vacuous": entry.vacuous} for entry in self.bounds],
            "warnings": list(self.warnings),
        }

    def __str__(self) -> str:
        head = (
            f"{self.log}: {self.sequences} sequences, {self.tokens} tokens, T = {self.longest}\n"
            f"Oracle {self.oracle.value:.4g} [{self.oracle.low:.4g}, {self.oracle.high:.4g}], "
            f"an estimate; at most {self.certificate.value:.4g}, {self.certificate.label} if "
            + "; ".join(self.certificate.assumptions)
        )
        lines = [
            f"  {e.name:38s} {e.value:12.5g} [{e.low:.4g}, {e.high:.4g}]  {e.status}"
            for e in self.bounds
            if e.value is not None
        ]
        return "\n".join([head, *lines])


def audit(
    log: RolloutLog | str | Path,
    *,
    seed: int = 0,
    n_boot: int = 2000,
    confidence: float = 0.95,
    max_length: int | None = None,
    ratio_floor: float = 0.0,
) -> Audit:
    """Audit a log.

    Args:
        log: a :class:`~simulations.logs.RolloutLog`, or a path to read.
        seed: of the bootstrap; the result is reproducible to the bit on CPU.
        n_boot: bootstrap resamples of the sequences.
        confidence: level of the intervals and of the certificate, in (0, 1).
        max_length: the longest response that could have been sampled (generation limit), for the
            certificate; by default the longest logged, which is then one of its assumptions.
        ratio_floor: a number in [0, 1) that no ratio theta/roll of any token is below, known from
            outside the log; it makes the certificate sharper.

    Raises:
        InputError: a bad log, or options out of range.

    Source: TRM section 2 (arXiv 2512.23075); Oracle, square-root and the rest as in the registry.
    """
    if n_boot < 1:
        raise InputError(f"--bootstrap is {n_boot}; give at least 1 resample")
    if not 0 < confidence < 1:
        raise InputError(f"--confidence is {confidence}; give a level in (0, 1) such as 0.95")
    if not isinstance(log, RolloutLog):
        log = read_log(log)
    certificate = _certificate(log, confidence, max_length, ratio_floor)
    exact = all(name in log.columns for name in ("kl", "tv", "chi2"))
    tokenwise = _token_divergences(log, exact)
    count = len(log.sequence_ids)
    worst = _per_sequence_oracle(log)
    weights = np.random.default_rng(seed).multinomial(
        count, np.full(count, 1 / count), size=n_boot
    ) / float(count)
    oracle_boot = weights @ worst
    means = _named("mean_t", {name: v.mean(axis=0) for name, v in tokenwise.items()})
    maxima = _named("max_t", {name: v.max(axis=0) for name, v in tokenwise.items() if exact})
    point = evaluate(**maxima, **means)
    boot = _bootstrap_bounds(tokenwise, maxima, weights)
    tails = ((1 - confidence) / 2, (1 + confidence) / 2)
    oracle_value = float(worst.mean())
    low, high = _interval(oracle_boot, tails)
    oracle = Estimate("oracle", oracle_value, low, high, "reward", "1/2 mean |W| over sequences")
    khat, threshold = _khat(worst)
    entries = tuple(
        _bound_estimate(entry.name, point, boot, oracle_value, oracle_boot, tails)
        for entry in point
        if entry.bound.role != "oracle"
    )
    return Audit(
        log.name,
        count,
        int(log.mask.sum()),
        log.mask.shape[1],
        exact,
        confidence,
        _quantities(log, tokenwise, exact, weights, tails),
        entries,
        oracle,
        certificate,
        khat,
        threshold,
        (*_warnings(log, exact, khat, threshold, entries), *_reach(certificate)),
        _curves(log, tokenwise, weights, tails),
        dict(log.metadata),
    )


def _token_divergences(log: RolloutLog, exact: bool) -> dict[str, FloatArray]:
    """``kl``, ``tv``, ``chi2`` per token ``[B, T]``: exact at the context, or single-sample."""
    if exact:
        return {name: log.columns[name] for name in ("kl", "tv", "chi2")}
    ratio = log.log_ratio
    excess = np.expm1(ratio)
    return {"kl": _k3(ratio), "tv": np.abs(excess) / 2, "chi2": excess**2}


def _k3(log_ratio: FloatArray) -> FloatArray:
    """``rho - 1 - log rho`` of every token; infinite where theta has no mass."""
    with np.errstate(invalid="ignore"):
        return np.where(np.isneginf(log_ratio), np.inf, np.expm1(log_ratio) - log_ratio)


def _named(suffix: str, values: Mapping[str, FloatArray]) -> dict[str, Any]:
    """Quantities ``kl_<suffix>``, ``tv_<suffix>``, ``chi2_<suffix>``; total variation at most 1."""
    return {
        f"{name}_{suffix}": np.minimum(value, 1.0) if name == "tv" else value
        for name, value in values.items()
    }


def _bootstrap_bounds(
    tokenwise: Mapping[str, FloatArray], maxima: Mapping[str, Any], weights: FloatArray
) -> dict[str, FloatArray]:
    """Bound name -> values ``[n_boot]``.

    Means are resampled. Maxima are held at the whole log's: the bootstrap is inconsistent for a
    maximum (a resample's can only be lower), so it would give an interval below the point.
    """
    collected: dict[str, list[FloatArray]] = {}
    for part in _chunks(weights, tokenwise["kl"].shape[1]):
        means = _named("mean_t", {name: _weighted(part, v) for name, v in tokenwise.items()})
        for entry in evaluate(validate=False, **maxima, **means):
            if entry.value is not None:
                value = np.broadcast_to(np.asarray(entry.value), len(part))
                collected.setdefault(entry.name, []).append(value)
    return {name: np.concatenate(values) for name, values in collected.items()}


def _weighted(weights: FloatArray, values: FloatArray) -> FloatArray:
    """``weights @ values`` in which an infinite value that was not drawn counts nothing."""
    if np.isfinite(values).all():
        return weights @ values
    finite = weights @ np.where(np.isfinite(values), values, 0.0)
    drawn = weights @ (~np.isfinite(values)).astype(float)
    return np.where(drawn > 0, np.inf, finite)


def _chunks(weights: FloatArray, size: int) -> Iterator[FloatArray]:
    step = max(1, _CHUNK // max(size, 1))
    for start in range(0, len(weights), step):
        yield weights[start : start + step]


def _per_sequence_oracle(log: RolloutLog) -> FloatArray:
    """``|W|/2`` of every sequence ``[B]``, from the registry's Oracle."""
    expression = integrand(registry.get("oracle").expression)
    positions = Positions(log.log_ratio, constant=False)
    horizon = np.asarray(float(log.mask.shape[1]))
    return np.asarray(evaluate_expression(expression, {"T": horizon, "log_ratio": positions}))


def _certificate(
    log: RolloutLog, level: float, max_length: int | None, floor: float
) -> OneSidedBound:
    """Confidence bound on the Oracle for the log's own prompts; the unit is the sequence."""
    longest = log.mask.shape[1]
    horizon = longest if max_length is None else max_length
    if horizon < longest:
        raise InputError(
            f"--max-length is {horizon} but {log.name} holds a response of {longest} tokens; give "
            "the generation limit"
        )
    if not 0 <= floor < 1:
        raise InputError(f"--ratio-floor is {floor}; a lower bound on every ratio is in [0, 1)")
    ratio = log.log_ratio
    # log-probs come rounded, so a token may sit a hair below a floor that holds
    below = np.exp(ratio) < floor * (1 - 1e-6)
    if below.any():
        row, token = (int(i[0]) for i in np.nonzero(below))
        raise InputError(
            f"{log.name}: row {row} (sequence {log.sequence_ids[row]}), token {token}: its ratio "
            f"{np.exp(ratio[row, token]):g} is below --ratio-floor {floor:g}; lower the floor"
        )
    return oracle_upper_confidence(
        ratio.sum(axis=1), np.expm1(ratio).sum(axis=1), horizon, level=level, floor=floor
    )


def _reach(certificate: OneSidedBound) -> Iterator[str]:
    """Why a certificate says nothing, when that is for want of sequences, and what would help."""
    log_term = -math.log1p(-certificate.level)
    least = -certificate.upper * math.expm1(-log_term / certificate.n)
    if certificate.value <= REWARD_RANGE or certificate.upper <= REWARD_RANGE:
        return
    needed = math.ceil((log_term + math.log(2)) / -math.log1p(-REWARD_RANGE / certificate.upper))
    yield (
        f"The certificate is vacuous: from ratios alone, {certificate.n} sequences in which the "
        f"worst error can reach {certificate.upper:g} cannot certify much less than {least:.2g}. "
        f"Below {REWARD_RANGE:g} takes more than about {needed} sequences, or --ratio-floor."
    )


def _khat(worst: FloatArray) -> tuple[float, float]:
    """PSIS tail shape of ``|W|`` and the threshold ``min(1 - 1/log10 S, 0.7)`` (Vehtari et al.)."""
    size = len(worst)
    threshold = float(min(1 - 1 / np.log10(size), 0.7)) if size > 10 else 0.0
    positive = worst[worst > 0]
    if len(positive) < _SMALL_SAMPLE or np.ptp(positive) == 0 or not np.isfinite(positive).all():
        return float("nan"), threshold
    # ties at or next to the tail's cutoff leave no shape to fit: an error, or a division by zero
    try:
        with np.errstate(divide="ignore", invalid="ignore"):
            khat = float(array_stats.psislw(np.log(positive))[1])
    except ValueError:
        khat = float("nan")
    return (khat if math.isfinite(khat) else float("nan")), threshold


def _interval(values: FloatArray, tails: tuple[float, float]) -> tuple[float, float]:
    finite = np.where(np.isfinite(values), values, np.finfo(np.float64).max)
    low, high = np.quantile(finite, tails)
    return float(low), float(high)


def _bound_estimate(
    name: str,
    point: Evaluation,
    boot: Mapping[str, FloatArray],
    oracle: float,
    oracle_boot: FloatArray,
    tails: tuple[float, float],
) -> BoundEstimate:
    entry = point[name]
    nan = float("nan")
    common = (name, entry.bound.title, entry.bound.owner, entry.bound.form)
    if entry.value is None:
        absent = [key for key, source in entry.inputs.items() if source.status == "missing"]
        note = "not identifiable from sampled log-probs: " + ", ".join(absent)
        return BoundEstimate(*common, None, nan, nan, nan, nan, nan, "missing", note)
    value = float(entry.value)
    low, high = _interval(boot[name], tails)
    uses_maxima = any(key.endswith(("_max", "_max_t")) for key in entry.inputs)
    if uses_maxima and low == high:
        low, high = nan, nan
    safe = np.where(boot[name] > 0, boot[name], np.inf)
    tight_low, tight_high = _interval(oracle_boot / safe, tails)
    tightness = oracle / value if value > 0 else nan
    note = "above 1 only through sampling error" if tightness > 1 else ""
    if uses_maxima and entry.bound.role == "bound":
        note = "; ".join(filter(None, (note, "maxima held at their visited values")))
    status = "estimate" if entry.certified else "approximation"
    return BoundEstimate(*common, value, low, high, tightness, tight_low, tight_high, status, note)


def _quantities(
    log: RolloutLog,
    tokenwise: Mapping[str, FloatArray],
    exact: bool,
    weights: FloatArray,
    tails: tuple[float, float],
) -> tuple[Estimate, ...]:
    tokens = log.mask.sum(axis=1).astype(float)
    ratio = log.log_ratio

    def token_mean(name: str, values: FloatArray, unit: str, note: str = "") -> Estimate:
        totals = values.sum(axis=1)
        boot = _weighted(weights, totals[:, None])[:, 0] / (weights @ tokens)
        return Estimate(
            name, float(totals.sum() / tokens.sum()), *_interval(boot, tails), unit, note
        )

    def sequence_mean(name: str, values: FloatArray, unit: str, note: str = "") -> Estimate:
        totals = values.sum(axis=1)
        boot = _weighted(weights, totals[:, None])[:, 0]
        return Estimate(name, float(totals.mean()), *_interval(boot, tails), unit, note)

    how = "exact at visited contexts" if exact else "from sampled log-probs"
    visited = int(log.mask.sum())
    found = [
        sequence_mean("kl_seq", tokenwise["kl"], "nats", f"KL(roll || theta) of sequences, {how}"),
        token_mean("kl_mean", tokenwise["kl"], "nats", f"KL(roll || theta) a token, {how}"),
        token_mean("tv_mean", tokenwise["tv"], "", f"total variation a token, {how}"),
        token_mean("chi2_mean", tokenwise["chi2"], "", f"chi2(theta || roll) a token, {how}"),
        token_mean("k1", -ratio, "nats", "mean of -log rho; unbiased for KL(roll || theta)"),
        token_mean("k2", ratio**2 / 2, "nats", "mean of (log rho)^2/2"),
        token_mean(
            "k3", _k3(ratio), "nats", "mean of rho - 1 - log rho; unbiased for KL(roll || theta)"
        ),
        token_mean("abs_log_ratio", np.abs(ratio), "nats", "mean |log rho| of sampled tokens"),
    ]
    if exact:
        note = f"largest of {visited} visited contexts: can only be too low, not a certificate"
        nan = float("nan")
        for name, unit in (("kl", "nats"), ("tv", ""), ("chi2", "")):
            top = float(tokenwise[name].max())
            found.append(Estimate(f"{name}_max", top, nan, nan, unit, note))
    if "logit_half_range" in log.columns:
        note = "E: largest |logit difference| after removing the common shift, mean over tokens"
        found.append(token_mean("logit_half_range", log.columns["logit_half_range"], "nats", note))
    if "argmax_agree" in log.columns:
        note = "share of positions where both argmaxes agree"
        found.append(token_mean("argmax_agree", log.columns["argmax_agree"], "", note))
    return tuple(found)


def _warnings(
    log: RolloutLog,
    exact: bool,
    khat: float,
    threshold: float,
    entries: tuple[BoundEstimate, ...],
) -> tuple[str, ...]:
    found = []
    if exact:
        found.append(
            "Maxima are over visited contexts only: bounds that use them can be too low, and their "
            "intervals cover the sampling error of the means alone. The max-free ones "
            "(square-root, cauchy-schwarz) need means only."
        )
    else:
        found.append(
            "Only sampled log-probs are present: largest divergences are not identifiable, and "
            "bounds that need them are left out."
        )
    if np.isnan(khat):
        found.append(
            f"The Oracle's tail cannot be fitted from these {len(log.sequence_ids)} sequences; "
            "treat its interval as optimistic and log more sequences."
        )
    elif khat > threshold:
        found.append(
            f"Pareto k-hat {khat:.2f} exceeds {threshold:.2f}: rare sequences dominate the Oracle, "
            "its interval is too narrow; log more sequences or compare at a shorter T."
        )
    if any(entry.tightness > 1 for entry in entries):
        found.append("Some tightness is above 1: sampling error of the Oracle or of the means.")
    k1 = (-log.log_ratio).sum(axis=1)
    k1 = k1[np.isfinite(k1)]
    if len(k1) > 1 and k1.mean() < -4 * k1.std() / np.sqrt(len(k1)) < 0:
        found.append(
            "The mean of log roll - log train is clearly negative, which a KL cannot be: are the "
            "two columns swapped, or is one of them at another temperature?"
        )
    return tuple(found)


def _curves(
    log: RolloutLog,
    tokenwise: Mapping[str, FloatArray],
    weights: FloatArray,
    tails: tuple[float, float],
) -> dict[str, pd.DataFrame]:
    """Tables for the figure: per position, log-ratio histogram, mismatch against p."""
    kl = np.where(np.isfinite(tokenwise["kl"]), tokenwise["kl"], np.nan)
    kl = np.nan_to_num(kl, nan=0.0)
    low, high = np.quantile(weights @ kl, tails, axis=0)
    position = pd.DataFrame(
        {
            "t": np.arange(1, kl.shape[1] + 1),
            "kl_mean": kl.mean(axis=0),
            "low": low,
            "high": high,
            "kl_max": kl.max(axis=0),
        }
    )
    ratio = log.log_ratio[log.mask]
    ratio = ratio[np.isfinite(ratio)]
    counts, edges = np.histogram(ratio, bins=60)
    histogram = pd.DataFrame({"left": edges[:-1], "right": edges[1:], "count": counts})
    p = np.exp(log.rollout_logprobs)
    size = np.abs(log.log_ratio)
    bins = np.clip(np.digitize(p, P_EDGES) - 1, 0, len(P_EDGES) - 2)
    rows = []
    for i in range(len(P_EDGES) - 1):
        inside = log.mask & (bins == i) & np.isfinite(size)
        per_sequence = inside.sum(axis=1).astype(float)
        if not per_sequence.sum():
            continue
        totals = np.where(inside, size, 0.0).sum(axis=1)
        denominator = weights @ per_sequence
        with np.errstate(invalid="ignore", divide="ignore"):
            boot = (weights @ totals) / denominator
        boot = boot[np.isfinite(boot)]
        lower, upper = np.quantile(boot, tails) if len(boot) else (np.nan, np.nan)
        rows.append(
            {
                "p": float(np.where(inside, p, 0.0).sum() / per_sequence.sum()),
                "mismatch": float(totals.sum() / per_sequence.sum()),
                "low": float(lower),
                "high": float(upper),
                "tokens": int(per_sequence.sum()),
            }
        )
    return {"position": position, "log_ratio": histogram, "mismatch": pd.DataFrame(rows)}
