"""Tidy tables on disk: Parquet or CSV by suffix, written batch by batch."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from bounds.errors import InputError

#: Table formats by suffix.
SUFFIXES: Final = (".parquet", ".csv", ".csv.gz")


def table_kind(path: Path) -> str:
    """The table format that the suffix of ``path`` names.

    Raises:
        InputError: another suffix.
    """
    for suffix in reversed(SUFFIXES):
        if path.name.lower().endswith(suffix):
            return suffix
    raise InputError(
        f"--out {path.name!r} has no known suffix; use one of {', '.join(SUFFIXES)}, "
        "e.g. --out sweep.parquet"
    )


class TableFile:
    """A table file that takes record batches; its schema is that of the first one.

    Args:
        path: where to write; the caller makes it atomic.
        kind: one of :data:`SUFFIXES`.
        plain: columns that Parquet stores without a dictionary.
    """

    def __init__(self, path: Path, kind: str, plain: Collection[str] = ()) -> None:
        self.path, self.kind, self.plain = path, kind, plain
        self.writer: Any = None
        self.stream: Any = None

    def write(self, batches: Iterable[pa.RecordBatch]) -> int:
        """Write batches, each a row group; the number of rows."""
        rows = 0
        for batch in batches:
            if self.kind != ".parquet":
                batch = _decoded(batch)
            if self.writer is None:
                self.writer = self._open(batch.schema)
            self.writer.write_batch(batch)
            rows += batch.num_rows
        return rows

    def _open(self, schema: pa.Schema) -> Any:
        if self.kind == ".parquet":
            # values do not compress, so that is not tried
            return pyarrow.parquet.ParquetWriter(
                self.path,
                schema,
                use_dictionary=[name for name in schema.names if name not in self.plain],
                compression={n: "none" if n == "value" else "snappy" for n in schema.names},
            )
        self.stream = pa.OSFile(str(self.path), "wb")
        if self.kind == ".csv.gz":
            self.stream = pa.CompressedOutputStream(self.stream, "gzip")
        return pyarrow.csv.CSVWriter(self.stream, schema)

    def close(self) -> None:
        """Finish the file."""
        for part in (self.writer, self.stream):
            if part is not None:
                part.close()


def _decoded(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
