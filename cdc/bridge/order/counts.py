"""What happened to each table, for metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class TableCounts:
    """What happened to one table since the process started; only ever grows."""

    changes: int = 0
    toast_rereads: int = 0
    truncates: int = 0


class CountsByTable(dict[str, TableCounts]):
    """``TableCounts`` by ``namespace.table``."""

    def __missing__(self, table: str) -> TableCounts:
        self[table] = counts = TableCounts()
        return counts
