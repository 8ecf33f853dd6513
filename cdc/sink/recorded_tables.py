"""The sink's own record of its replica tables: the state of each, which events move, in the replica's transactions."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from cdc.contract.ports import ReplicaTable
from cdc.contract.table_states import TableEvent, TableState, moved
from cdc.sink.taking_up import NO_CULPRIT


class RecordedTables:
    """Keeps the table ``mirrored_table`` for one sink.

    Args:
        connection: a connection to the replica; the caller begins and commits.
        recorded: the table.
        name: the name of the sink.

    Attributes:
        rows: what earlier sessions recorded.
        tables: every known replica table by topic, as it is now.
    """

    def __init__(self, connection: sa.Connection, recorded: sa.Table, name: str) -> None:
        self._connection = connection
        self._recorded = recorded
        self._name = name
        self.rows = connection.execute(sa.select(recorded).where(recorded.c.name == name)).all()
        self.tables = {
            row.topic: ReplicaTable(row.topic, row.replica_table, row.state, row.reason, row.rows_applied)
            for row in self.rows
        }

    def enter(self, topic: str, table: str, fingerprint: str) -> None:
        """Records that a topic has this replica table. A topic without one, or with another, begins as ``loading``."""
        known = self.tables.get(topic)
        if known is not None and known.name == table:
            return
        self.tables[topic] = ReplicaTable(topic, table, TableState.LOADING, None, 0)
        if known is None:
            self._insert(topic, fingerprint)
        else:
            self.update(topic, replica_table=table, state=TableState.LOADING.value, reason=None)

    def enter_again(self, topic: str) -> None:
        """Records a topic's table again if a rollback has undone its first record."""
        columns = self._recorded.c
        is_this = columns.name == self._name, columns.topic == topic
        if self._connection.execute(sa.select(columns.topic).where(*is_this)).first() is None:
            self._insert(topic, "")

    def _insert(self, topic: str, fingerprint: str) -> None:
        table = self.tables[topic]
        self._connection.execute(
            sa.insert(self._recorded).values(
                name=self._name,
                topic=topic,
                replica_table=table.name,
                fingerprint=fingerprint,
                state=str(table.state),
                rows_applied=table.rows_applied,
            )
        )

    def move(self, topic: str, *events: TableEvent, **values: Any) -> None:
        """Records the state that events lead to, and other columns. A new state clears reason and culprit."""
        table = self.tables[topic]
        state = moved(table.state, *events)
        if state != table.state:
            values = {"state": state.value, "reason": None, **NO_CULPRIT, **values}
        if values:
            self.tables[topic] = table._replace(
                state=state,
                reason=values.get("reason", table.reason),
                rows_applied=values.get("rows_applied", table.rows_applied),
            )
            self.update(topic, **values)

    def update(self, topic: str, **values: Any) -> None:
        """Records columns of a topic's table."""
        self._connection.execute(
            sa.update(self._recorded)
            .where(self._recorded.c.name == self._name, self._recorded.c.topic == topic)
            .values(**values)
        )
