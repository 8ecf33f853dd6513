"""What the catalog says of replica tables: which ones they are, and whether they keep the rows that are put into them.

Facts are taken when a table is taken up, and compared at the cuts. Whatever has changed ends the session: the next one
looks at everything and decides. So somebody may alter replica tables beside a running sink.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

import psycopg

from cdc.base.errors import ReplicaUnavailable
from cdc.contract.pgtypes import quote_identifier
from cdc.sink.postgres.errors import TableRefused
from cdc.sink.postgres.naming import ReplicaName
from cdc.sink.postgres.tables import quoted_name

_LOOK_S: Final = 5.0
"""How often the tables are looked at that no row went to."""

_REPLACED: Final = "the replica table was dropped and made anew"
_EMPTIED: Final = "the replica table was emptied"

_FACTS: Final = """
SELECT relnamespace::regnamespace::text, relname, oid::int8, relfilenode::int8, relpersistence = 'u',
       relhasrules OR relhastriggers, relrowsecurity
FROM pg_catalog.pg_class WHERE oid {}
"""
_OF_THE_NAME: Final = _FACTS.format("= to_regclass(%s)")
_OF_THESE: Final = _FACTS.format("= ANY (%s::oid[])")
"""A third of what it costs to look names up, and this is asked at every cut."""

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
        schema: that it is in now, quoted where need be.
        table: its name now.
        oid: another table of the name has another one.
        file: ``relfilenode``, new when the table is written anew: TRUNCATE, SET UNLOGGED, SET LOGGED, VACUUM FULL.
        is_unlogged: a crash of the server empties it.
        has_own_ways: triggers or rules.
        has_policies: of row-level security.
    """

    schema: str
    table: str
    oid: int
    file: int
    is_unlogged: bool
    has_own_ways: bool
    has_policies: bool


class KnownTables:
    """The replica tables of a session, as they were when it took them up.

    Args:
        session: to the replica.
        recorded: by topic, oid and file of the table that the rows were written to; None where that is not known.
    """

    def __init__(self, session: psycopg.Connection[Any], recorded: Mapping[str, tuple[int | None, int | None]]) -> None:
        self._session = session
        self._recorded = dict(recorded)
        self._names: dict[str, ReplicaName] = {}
        self._facts: dict[str, CatalogTable] = {}
        self._look_due = time.monotonic() + _LOOK_S

    def is_there(self, name: ReplicaName) -> bool:
        """Whether anything has that name."""
        return self._find(name) is not None

    def take_up(self, topic: str, name: ReplicaName) -> None:
        """Take notice of a table that is there.

        Raises:
            TableRefused: it loses rows by itself.
        """
        facts = self._find(name)
        assert facts is not None  # it was established just now
        self._refuse_unlogged(name, facts)
        self._refuse_actions(name, facts)
        self._names[topic], self._facts[topic] = name, facts

    def has_own_ways(self, topic: str) -> bool:
        """Whether triggers or rules may keep rows out, or in."""
        return self._facts[topic].has_own_ways

    def why_empty(self, topic: str) -> str:
        """Of a table without rows: what may have taken them; empty when nothing has since they were written."""
        oid, file = self._recorded.get(topic, (None, None))
        facts = self._facts[topic]
        if oid is not None and oid != facts.oid:
            return _REPLACED
        return _EMPTIED if file is not None and file != facts.file else ""

    def to_record(self, topic: str) -> dict[str, int]:
        """Columns of ``cdc.mirrored_table`` that have to say which table it is; none when they do."""
        facts = self._facts[topic]
        if self._recorded.get(topic) == (facts.oid, facts.file):
            return {}
        self._recorded[topic] = facts.oid, facts.file
        return {"table_oid": facts.oid, "table_file": facts.file}

    def refuse_changed(self, written: Collection[str], taking: Collection[str]) -> None:
        """Rows went to tables by name: they must be those that have all others, and still keep them.

        Args:
            written: topics whose tables are looked at now.
            taking: topics whose tables take rows; they are looked at now and then.

        Raises:
            ReplicaUnavailable: one is not; the next session decides what that means.
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
                    f"{_REPLACED} under the running sink: {name}",
                    remedy="wait: the sink looks at its tables again; stop whoever replaces replica tables",
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
                    remedy="wait: the sink looks at its tables again, and says if the change does not fit",
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
                "(CASCADE, SET NULL or SET DEFAULT); the source did not, or its topic says so, too",
                remedy=f"ALTER TABLE {quoted_name(name)} DROP CONSTRAINT {quote_identifier(key)};  and add it without "
                "actions, DEFERRABLE INITIALLY DEFERRED; or ALTER ROLE … SET session_replication_role = replica;  "
                f"-- the sink's; then cdc sink --rebuild, for rows of {name} may be missing",
            )
