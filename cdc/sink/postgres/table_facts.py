"""Catalog facts about replica tables: whether a table is still the same, and whether it keeps the rows it is given.

The facts are read when a table is taken up, and compared at the cuts. Any change ends the session, and the next one
decides what the change means. So you may alter replica tables while the sink is running.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

import psycopg

from cdc.base.errors import ReplicaUnavailable
from cdc.contract.pgtypes import quote_identifier
from cdc.sink.postgres.tables import quoted_name
from cdc.sink.rejections import TableRefused
from cdc.sink.replica import ReplicaName

_LOOK_S: Final = 5.0
"""How often tables that got no rows are checked."""

_REPLACED: Final = "the replica table was dropped and recreated"
_GONE: Final = "the replica table was dropped, renamed or recreated"
_EMPTIED: Final = "the replica table was emptied"

_FACTS: Final = """
SELECT relnamespace::regnamespace::text, relname, oid::int8, relfilenode::int8, relpersistence = 'u',
       relhasrules OR relhastriggers, relrowsecurity
FROM pg_catalog.pg_class WHERE oid {}
"""
_OF_THE_NAME: Final = _FACTS.format("= to_regclass(%s)")
_OF_THESE: Final = _FACTS.format("= ANY (%s::oid[])")
"""Finds tables by oid, which costs a third of a look-up by name. It runs at every cut."""

_UNLOGGED: Final = """
SELECT c.oid::regclass::text FROM pg_catalog.pg_class c
WHERE c.relpersistence = 'u' AND c.relkind IN ('r', 'p') AND c.oid IN (
    SELECT %s::oid UNION SELECT relid FROM pg_catalog.pg_partition_tree(%s::oid::regclass)) ORDER BY 1
"""

_ACTIONS: Final = """
SELECT conname::text, confrelid::regclass::text FROM pg_catalog.pg_constraint
WHERE conrelid = %s::oid AND contype = 'f' AND (confdeltype IN ('c', 'n', 'd') OR confupdtype IN ('c', 'n', 'd'))
  AND current_setting('session_replication_role') <> 'replica' ORDER BY 1
"""


class CatalogTable(NamedTuple):
    """A table in the catalog.

    Attributes:
        schema: its current schema, quoted if necessary.
        table: its current name.
        oid: changes when the table is dropped and created again.
        file: ``relfilenode``; changes when the table is rewritten, as by TRUNCATE, SET LOGGED or VACUUM FULL.
        is_unlogged: a crash of the server empties the table.
        has_own_ways: the table has triggers or rules.
        has_policies: the table has row-level security.
    """

    schema: str
    table: str
    oid: int
    file: int
    is_unlogged: bool
    has_own_ways: bool
    has_policies: bool


class KnownTables:
    """The replica tables of a session, as they were when the session took them up.

    Args:
        session: to the replica.
        recorded: by topic, the oid and file of the table that earlier sessions wrote to; None when not known.
    """

    def __init__(self, session: psycopg.Connection[Any], recorded: Mapping[str, tuple[int | None, int | None]]) -> None:
        self._session = session
        self._recorded = dict(recorded)
        self._names: dict[str, ReplicaName] = {}
        self._facts: dict[str, CatalogTable] = {}
        self._look_due = time.monotonic() + _LOOK_S

    def is_there(self, name: ReplicaName) -> bool:
        """Returns whether a relation of that name exists."""
        return self._find(name) is not None

    def take_up(self, topic: str, name: ReplicaName) -> None:
        """Reads the facts of a table that exists.

        Raises:
            TableRefused: the table can lose rows by itself: it is UNLOGGED, or a foreign key acts on its rows.
        """
        facts = self._find(name)
        assert facts is not None  # it was established just now
        self._refuse_unlogged(name, facts)
        self._refuse_actions(name, facts)
        self._names[topic], self._facts[topic] = name, facts

    def has_own_ways(self, topic: str) -> bool:
        """Returns whether triggers or rules may keep the sink from inserting or deleting rows."""
        return self._facts[topic].has_own_ways

    def why_empty(self, topic: str) -> str:
        """Returns why a table has no rows, or an empty text if it is the same table and was not emptied."""
        oid, file = self._recorded.get(topic, (None, None))
        facts = self._facts[topic]
        if oid is not None and oid != facts.oid:
            return _REPLACED
        return _EMPTIED if file is not None and file != facts.file else ""

    def to_record(self, topic: str) -> dict[str, int]:
        """Returns the columns of ``cdc.mirrored_table`` to update with the table's oid and file; empty if current."""
        facts = self._facts[topic]
        if self._recorded.get(topic) == (facts.oid, facts.file):
            return {}
        self._recorded[topic] = facts.oid, facts.file
        return {"table_oid": facts.oid, "table_file": facts.file}

    def refuse_changed(self, written: Collection[str], taking: Collection[str]) -> None:
        """Checks that tables are still the same. The sink writes by name, so a replaced table would lack older rows.

        Args:
            written: topics whose tables got rows; these are checked each time.
            taking: topics whose tables take rows; these are checked every few seconds.

        Raises:
            ReplicaUnavailable: a table was replaced or altered; the next session decides what that means.
        """
        topics = [*written]
        if time.monotonic() >= self._look_due:
            topics = [*taking]
            self._look_due = time.monotonic() + _LOOK_S
        if not topics:
            return
        rows = self._session.execute(_OF_THESE, [[self._facts[each].oid for each in topics]]).fetchall()
        found = {facts.oid: facts for facts in map(CatalogTable._make, rows)}
        for topic in topics:
            known, name = self._facts[topic], self._names[topic]
            now = found.get(known.oid)
            if now is None or (now.schema, now.table) != (known.schema, known.table):
                raise ReplicaUnavailable(
                    f"{_GONE} under the running sink: {name}",
                    remedy="wait: the sink checks its tables again; if this repeats, find out who replaces them",
                )
            if now != known:
                what = (
                    "UNLOGGED"
                    if now.is_unlogged
                    else "row-level security"
                    if now.has_policies
                    else "file, triggers or rules"
                )
                raise ReplicaUnavailable(
                    f"the replica table was altered under the running sink: {name} ({what})",
                    remedy="wait: the sink checks its tables again, and reports a change that it cannot accept",
                )

    def _find(self, name: ReplicaName) -> CatalogTable | None:
        row = self._session.execute(_OF_THE_NAME, [quoted_name(name)]).fetchone()
        return None if row is None else CatalogTable(*row)

    def _refuse_unlogged(self, name: ReplicaName, facts: CatalogTable) -> None:
        found = [each for (each,) in self._session.execute(_UNLOGGED, [facts.oid, facts.oid]).fetchall()]
        if found:
            raise TableRefused(
                f"replica table {name} is UNLOGGED: a crash of its server empties it, and the sink would not notice",
                remedy=" ".join(f"ALTER TABLE {each} SET LOGGED;" for each in found) + "  then restart the sink",
            )

    def _refuse_actions(self, name: ReplicaName, facts: CatalogTable) -> None:
        for key, parent in self._session.execute(_ACTIONS, [facts.oid]).fetchall():
            raise TableRefused(
                f"foreign key {key} of replica table {name} changes or deletes its rows when {parent} changes "
                "(CASCADE, SET NULL or SET DEFAULT): the topic already holds what the source did to them",
                remedy=f"ALTER TABLE {quoted_name(name)} DROP CONSTRAINT {quote_identifier(key)};  and add it without "
                "actions, DEFERRABLE INITIALLY DEFERRED; or switch it off for the sink's role: "
                "ALTER ROLE … SET session_replication_role = replica;  "
                f"then cdc sink --rebuild, because rows of {name} may be missing",
            )
