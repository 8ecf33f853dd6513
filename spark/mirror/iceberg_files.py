"""Writes the data files of an Iceberg table, on an executor.

Spark's own writer gives no field ids to the elements of arrays and maps, and a reader that misses one of them has to go
by names. So the rows are written by pyarrow, with the ids of all fields. Then each file says what its columns are, also
for versions from before a column was given another type under the same name.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

FULL_BYTES: Final = 128 * 2**20
"""What the rows of one file take in memory. On disk they are a fraction of that."""


@dataclass(frozen=True, slots=True)
class DataFileWriter:
    """How to write rows into files that no other task writes, whatever is tried twice.

    Attributes:
        folder: where to write.
        schema: the Arrow schema of the files with Iceberg's field ids, serialized; the rows have its columns in order.
    """

    folder: str
    schema: bytes

    def write(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Writes one task's rows, and yields the paths of its files; passed to ``mapInArrow``."""
        import pyarrow

        schema = pyarrow.ipc.read_schema(pyarrow.py_buffer(self.schema))
        paths = [self._write_file(group, schema) for group in _groups(batches)]
        yield pyarrow.RecordBatch.from_arrays([pyarrow.array(paths, type=pyarrow.string())], names=["path"])

    def _write_file(self, group: list[Any], schema: Any) -> str:
        import pyarrow
        import pyarrow.parquet

        rows = pyarrow.Table.from_batches(group)
        columns = [rows.column(place).cast(field.type) for place, field in enumerate(schema)]
        path = Path(self.folder, f"part-{uuid.uuid4().hex}.parquet")
        path.parent.mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(
            pyarrow.Table.from_arrays(columns, schema=schema),
            path,
            compression="zstd",
            store_schema=False,
            store_decimal_as_integer=True,
        )
        return str(path)


def _groups(batches: Iterator[Any]) -> Iterator[list[Any]]:
    """Yields the rows of one file after the other."""
    group: list[Any] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            group.append(batch)
            size += batch.nbytes
        if size >= FULL_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group
