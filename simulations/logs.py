"""Read a rollout log: Parquet or JSONL, one row a sequence, list columns per token.

Required: ``rollout_logprobs`` and ``train_logprobs`` (nats, log-prob of the sampled token under
pi_roll and pi_theta). Optional: ``sequence_id``, ``response_mask``, and divergences computed from
full rows at the visited contexts: ``kl`` = KL(roll || train), ``tv``,
``chi2`` = chi2(train || roll), ``logit_half_range``, ``argmax_agree``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.json as pj
import pyarrow.parquet as pq

from bounds.errors import InputError

FloatArray = npt.NDArray[np.float64]
REQUIRED: Final = ("rollout_logprobs", "train_logprobs")
DIVERGENCES: Final = ("kl", "tv", "chi2")
OPTIONAL: Final = (*DIVERGENCES, "logit_half_range", "argmax_agree")
#: float32 rounding can leave a log-prob this much above zero.
POSITIVE_SLACK: Final = 1e-4


@dataclass(frozen=True)
class RolloutLog:
    """A log as padded arrays. Padding and masked-out positions are exactly neutral.

    Attributes:
        name: file name, for messages.
        sequence_ids: one a row.
        mask: bool ``[B, T]``, True at real response tokens.
        rollout_logprobs: float64 ``[B, T]``, nats, 0 where masked.
        train_logprobs: float64 ``[B, T]``, nats, 0 where masked.
        columns: optional per-token columns present, float64 ``[B, T]``, 0 where masked.
        metadata: the file's own ``trust_bounds.*`` metadata.
    """

    name: str
    sequence_ids: tuple[str, ...]
    mask: npt.NDArray[np.bool_]
    rollout_logprobs: FloatArray
    train_logprobs: FloatArray
    columns: Mapping[str, FloatArray]
    metadata: Mapping[str, str]

    @property
    def log_ratio(self) -> FloatArray:
        """``log pi_theta - log pi_roll`` of the sampled tokens, float64 ``[B, T]``; 0 if masked."""
        return self.train_logprobs - self.rollout_logprobs

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Real tokens of each sequence, ``[B]``."""
        return self.mask.sum(axis=1)


def read_log(path: str | Path) -> RolloutLog:
    """Read and check a log.

    Args:
        path: ``.parquet``, ``.jsonl`` or ``.json`` (one object a line).

    Raises:
        InputError: missing, empty, truncated or unreadable file; missing column; wrong type; row
            lists of different lengths; NaN or positive log-probs inside the mask; illegal
            divergences. The message names file, row, field and the mend.
    """
    path = Path(path)
    table, metadata = _table(path)
    if table.num_rows == 0:
        raise InputError(f"{path}: the log has no rows; give at least one sequence")
    for name in REQUIRED:
        if name not in table.column_names:
            raise InputError(
                f"{path}: column {name} is missing (found: {', '.join(table.column_names)}); "
                f"rename or add it"
            )
    ids = (
        tuple(str(value) for value in table["sequence_id"].to_pylist())
        if "sequence_id" in table.column_names
        else tuple(str(i) for i in range(table.num_rows))
    )
    lengths = _lengths(path, table, "rollout_logprobs", ids)
    names = [name for name in (*REQUIRED, *OPTIONAL) if name in table.column_names]
    shape = (table.num_rows, int(lengths.max()))
    inside = np.arange(shape[1]) < lengths[:, None]
    mask = inside.copy()
    if "response_mask" in table.column_names:
        _same_lengths(path, table, "response_mask", lengths, ids)
        mask[inside] = _flat(path, table, "response_mask") != 0
    empty = ~mask.any(axis=1)
    if empty.any():
        row = int(np.argmax(empty))
        raise InputError(
            f"{path}: row {row} (sequence {ids[row]}): response_mask leaves no token; drop the row"
        )
    padded: dict[str, FloatArray] = {}
    for name in names:
        _same_lengths(path, table, name, lengths, ids)
        values = np.zeros(shape)
        values[inside] = _flat(path, table, name)
        values = np.where(mask, values, 0.0)
        _check_values(path, name, values, ids)
        padded[name] = values
    return RolloutLog(
        path.name,
        ids,
        mask,
        np.minimum(padded["rollout_logprobs"], 0.0),
        np.minimum(padded["train_logprobs"], 0.0),
        {name: padded[name] for name in OPTIONAL if name in padded},
        metadata,
    )


def _table(path: Path) -> tuple[pa.Table, dict[str, str]]:
    if not path.is_file():
        what = "is a folder, give a file" if path.is_dir() else "does not exist; check the path"
        raise InputError(f"{path} {what}")
    if path.stat().st_size == 0:
        raise InputError(f"{path} is empty (0 bytes); write the log again")
    try:
        if path.suffix in (".jsonl", ".json"):
            return pj.read_json(path), {}
        table = pq.read_table(path)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"{path} is not a readable Parquet or JSONL log ({reason}); "
            "is it truncated? write it again"
        ) from error
    held = table.schema.metadata or {}
    metadata = {
        key.decode(): value.decode() for key, value in held.items() if key.startswith(b"trust_")
    }
    return table, metadata


def _column(path: Path, table: pa.Table, name: str) -> pa.Array:
    column = table[name].combine_chunks()
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_large_list(column.type) or pa.types.is_fixed_size_list(column.type):
        column = column.cast(pa.list_(column.type.value_type))
    kind = column.type
    numeric = pa.types.is_list(kind) and (
        pa.types.is_floating(kind.value_type)
        or pa.types.is_integer(kind.value_type)
        or pa.types.is_boolean(kind.value_type)
    )
    if not numeric:
        raise InputError(
            f"{path}: column {name} has type {kind}; it must hold one list of numbers a row"
        )
    if column.null_count:
        row = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise InputError(f"{path}: row {row}: {name} is null; drop the row or fill it")
    return column


def _lengths(path: Path, table: pa.Table, name: str, ids: tuple[str, ...]) -> npt.NDArray[np.int64]:
    column = _column(path, table, name)
    lengths = np.diff(column.offsets.to_numpy()).astype(np.int64)
    if (lengths == 0).any():
        row = int(np.argmax(lengths == 0))
        raise InputError(
            f"{path}: row {row} (sequence {ids[row]}): {name} has no tokens; drop the row"
        )
    return lengths


def _same_lengths(
    path: Path,
    table: pa.Table,
    name: str,
    lengths: npt.NDArray[np.int64],
    ids: tuple[str, ...],
) -> None:
    found = np.diff(_column(path, table, name).offsets.to_numpy())
    wrong = found != lengths
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InputError(
            f"{path}: row {row} (sequence {ids[row]}): {name} has {found[row]} values but "
            f"rollout_logprobs has {lengths[row]}; give one value a token"
        )


def _flat(path: Path, table: pa.Table, name: str) -> FloatArray:
    values = _column(path, table, name).flatten()
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    # a null token is NaN: legal where masked, refused elsewhere
    return np.asarray(values.cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)


def _check_values(path: Path, name: str, values: FloatArray, ids: tuple[str, ...]) -> None:
    def refuse(bad: npt.NDArray[np.bool_], problem: str, mend: str) -> None:
        if bad.any():
            row, position = (int(i[0]) for i in np.nonzero(bad))
            raise InputError(
                f"{path}: row {row} (sequence {ids[row]}), token {position}: {name} is "
                f"{values[row, position]:g}, {problem}; {mend}"
            )

    refuse(np.isnan(values), "not a number", "fix the value or mask the token out")
    if name in REQUIRED:
        refuse(
            values > POSITIVE_SLACK,
            "but a log-prob is <= 0",
            "is it already exponentiated, or of the other sign?",
        )
        if name == "rollout_logprobs":
            refuse(
                values == -np.inf,
                "but roll sampled this token",
                "check that log-probs and token ids belong together",
            )
        return
    refuse(values < 0, "but it cannot be negative", "was its sign taken the other way?")
    if name in ("tv", "argmax_agree"):
        refuse(values > 1 + 1e-9, "but it is at most 1", "TV is half of the L1 distance")
