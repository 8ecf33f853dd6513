"""Transactions of the model: what they write, which locks they hold, and how they end. DDL is part of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from psycopg import errors

from tests.world.postgres_errors import failure
from tests.world.postgres_tables import (
    TYPES,
    VARIABLE,
    Attribute,
    Cells,
    Heap,
    Row,
    RowVersion,
    UniqueIndex,
    Work,
    WorldPublication,
    WorldTable,
)

if TYPE_CHECKING:
    from tests.world.postgres import WorldServer

READ: Final = "AccessShareLock"
WRITE: Final = "RowExclusiveLock"
PUBLISH: Final = "ShareUpdateExclusiveLock"
ALTER: Final = "AccessExclusiveLock"

PublicationChange = Callable[[dict[str, WorldPublication]], object]


class WouldWait(Exception):
    """Somebody holds a lock that the operation needs. Nothing was done; it may be tried again."""


class Change(NamedTuple):
    """What one WAL record of a transaction says.

    Attributes:
        kind: ``I``, ``U``, ``D`` or ``T`` as in pgoutput; ``X`` for DDL, after which a relation is described again.
        table: the table as the transaction had it.
        kept: the numbers of attributes that are stored out of line, and that an UPDATE did not touch.
        others: further tables of one TRUNCATE.
    """

    lsn: int
    kind: str
    table: WorldTable
    work: Work
    old: Cells | None = None
    new: Cells | None = None
    kept: frozenset[int] = frozenset()
    others: tuple[WorldTable, ...] = ()


class _Savepoint:
    def __init__(self, name: str, transaction: WorldTransaction) -> None:
        self.name = name
        self.work: Work | None = None
        self.tables = dict(transaction.tables)
        self.publication_changes = len(transaction.publication_changes)
        self.locks = len(transaction.locks)


class WorldTransaction:
    """A transaction of anybody. Each method does what one statement does.

    Attributes:
        xid: its id, from its first write on.
        pid: its server process; None once it is prepared.
        changes: what it has done.
        written: the same, with what was rolled back to a savepoint.
        tables: the tables as it has them, where they differ from what everybody sees; None for those that are gone.
        commit_lsn: where its commit record begins.
        end_lsn: where its commit record ends; None before ``write_commit``.
        is_shown: whether new snapshots see it.
        is_over: whether it was rolled back, or is shown.
        works: itself and its subtransactions, as far as they wrote something.
    """

    def __init__(self, server: WorldServer, pid: int, application: str) -> None:
        self.server = server
        self.pid: int | None = pid
        self.application = application
        self.since = server.turns.now
        self.xid = 0
        self.changes: list[Change] = []
        self.written: list[Change] = []
        self.tables: dict[int, WorldTable | None] = {}
        self.publication_changes: list[tuple[int, PublicationChange]] = []
        self.altered: set[int] = set()
        self.locks: list[tuple[int, str]] = []
        self.gid: str | None = None
        self.commit_lsn: int | None = None
        self.end_lsn: int | None = None
        self.commit_us = 0
        self.is_shown = False
        self.is_over = False
        self.works: list[Work] = []
        self._savepoints: list[_Savepoint] = []

    # Rows.

    def insert(self, table: str, row: Row) -> None:
        """INSERT one row. Columns that it does not name get their defaults.

        Raises:
            WouldWait: somebody inserts or deletes the same key.
            psycopg.errors.UniqueViolation: the key is there.
        """
        info = self.to_write(table)
        cells = self._cells(info, row)
        self._refuse_duplicate(info, cells, None)
        self._store(info, cells, self._work())
        self._log("I", info, new=cells)

    def update(self, table: str, where: Row, to: Row) -> bool:
        """UPDATE the row with these values, or return False if there is none.

        Raises:
            WouldWait: somebody else has changed the row and is not over.
        """
        info = self.to_write(table)
        version = self._find(info, where)
        if version is None:
            return False
        self._refuse_without_identity(info, "update")
        before = {each.name: info.cell(version.cells, each.number) for each in info.columns}
        cells = self._cells(info, {**before, **to})
        self._refuse_duplicate(info, cells, version)
        work = self._work()
        version.remover = work
        self._store(info, cells, work)
        numbers = {info.attribute(name).number for name in to}
        kept = frozenset(
            each.number for each in info.columns if each.number not in numbers and self._is_out(each, cells)
        )
        self._log("U", info, old=version.cells, new=cells, kept=kept)
        return True

    def delete(self, table: str, where: Row) -> bool:
        """DELETE the row with these values, or return False if there is none. Raises as ``update`` does."""
        info = self.to_write(table)
        version = self._find(info, where)
        if version is None:
            return False
        self._refuse_without_identity(info, "delete from")
        version.remover = self._work()
        self._log("D", info, old=version.cells)
        return True

    def has_made(self, table: str) -> bool:
        """Whether this transaction has created the table."""
        return self._is_own(self.to_write(table))

    def _is_own(self, info: WorldTable) -> bool:
        return info.oid in self.tables and info.oid not in self.server.tables

    def truncate(self, *tables: str) -> None:
        """TRUNCATE some tables with one statement. Each gets a new file."""
        infos = [self.to_alter(each) for each in tables]
        work = self._work()
        assert not any(self._is_own(each) for each in infos), "not modelled"
        for info in infos:
            self._change(replace(info, filenode=self.server.new_file()), work)
        # The record comes after the new files are in the catalog, so the relations are described again before it
        self._log("T", infos[0], others=tuple(infos[1:]))

    # Subtransactions and the end.

    def savepoint(self, name: str) -> None:
        """SAVEPOINT."""
        self._savepoints.append(_Savepoint(name, self))

    def rollback_to(self, name: str) -> None:
        """ROLLBACK TO SAVEPOINT: what was done since leaves nothing, and its locks are released."""
        place = self._place(name)
        undone = [each.work for each in self._savepoints[place:] if each.work is not None]
        if undone:
            lsn = self.server.advance(64)
            for work in undone:
                work.undo(lsn)
            self.server.over(undone)
        self.changes = [each for each in self.changes if not each.work.is_undone]
        saved = self._savepoints[place]
        self.tables = saved.tables
        del self.publication_changes[saved.publication_changes :]
        self._unlock(saved.locks)
        self._savepoints[place:] = [_Savepoint(name, self)]

    def release(self, name: str) -> None:
        """RELEASE SAVEPOINT: what was done since belongs to the transaction around it."""
        del self._savepoints[self._place(name) :]

    def prepare(self, gid: str) -> None:
        """PREPARE TRANSACTION: it keeps its locks, and no longer has a process."""
        self._work()
        self.server.advance(64)
        self.server.flush()
        self.gid, self.pid = gid, None
        self.server.prepared[gid] = self

    def write_commit(self, *, flush: bool = True) -> int | None:
        """Write the commit into the WAL, where it is streamed from; snapshots see it after ``show``.

        Args:
            flush: wait until it is on disk, as ``synchronous_commit`` does.

        Returns:
            The position where the commit ends; None if nothing was written.
        """
        assert not self.is_over
        assert self.end_lsn is None
        if self.xid:
            self.server.write_commit(self)
            if flush:
                self.server.flush()
        return self.end_lsn

    def show(self) -> None:
        """Leave the running transactions: new snapshots see what this one did, and its locks are free."""
        assert not self.is_over
        assert self.end_lsn is not None or not self.xid, "write_commit comes first"
        self.is_over = self.is_shown = True
        self.server.show(self, self.works)
        self._unlock(0)

    def commit(self) -> int | None:
        """Write the commit and show it. Returns as ``write_commit``."""
        end = self.write_commit()
        self.show()
        return end

    def abort(self) -> None:
        """ROLLBACK."""
        assert not self.is_over
        assert self.end_lsn is None, "its commit is in the WAL"
        self.is_over = True
        if self.works:
            lsn = self.server.advance(64)
            for work in self.works:
                work.undo(lsn)
            if len(self.written) > self.server.streamed_after:
                self.server.aborted.append(self)
            self.server.over(self.works)
            self.server.running.pop(self.xid, None)
        self.server.prepared.pop(self.gid or "", None)
        self._unlock(0)

    # DDL.

    def create_table(self, table: str, columns: Mapping[str, str], key: Sequence[str], identity: str = "d") -> None:
        """CREATE TABLE with a primary key over ``key``; none if that is empty. ``columns`` has the types by name."""
        work, (namespace, name) = self._work(), split(table)
        assert self.find(table) is None, f"{table} is there"
        attributes = tuple(Attribute(each, TYPES[kind], place) for place, (each, kind) in enumerate(columns.items(), 1))
        numbers = tuple(list(columns).index(each) + 1 for each in key)
        indexes = (UniqueIndex(f"{name}_pkey", numbers, is_primary=True),) if key else ()
        oid = self.server.new_file()
        self.lock_oid(oid, ALTER)
        self._change(WorldTable(oid, namespace, name, attributes, indexes, identity, oid), work)

    def drop_table(self, table: str) -> None:
        """DROP TABLE, which also takes it out of every publication."""
        info = self.to_alter(table)
        self._change(info, self._work())
        self.tables[info.oid] = None
        if any(info.oid in each.entries for each in self._publications().values()):
            self._publish(lambda publications: _forget(publications, info.oid))

    def rename_table(self, table: str, name: str) -> None:
        """ALTER TABLE … RENAME TO, within its schema."""
        self._alter(table, name=name)

    def add_column(self, table: str, name: str, kind: str, default: bytes | None = None) -> None:
        """ALTER TABLE … ADD COLUMN. A default fills the rows that are there without another version of them."""
        info = self.to_alter(table)
        assert name not in info.by_name
        new = Attribute(name, TYPES[kind], len(info.attributes) + 1, default, default)
        self._alter(table, attributes=(*info.attributes, new))

    def drop_column(self, table: str, name: str) -> None:
        """ALTER TABLE … DROP COLUMN, with the indexes over it."""
        info = self.to_alter(table)
        column = info.attribute(name)
        gone = column._replace(is_dropped=True, name=f"........pg.dropped.{column.number}........")
        indexes = tuple(each for each in info.indexes if column.number not in each.numbers)
        self._alter(table, attributes=info.with_attribute(gone).attributes, indexes=indexes)

    def rename_column(self, table: str, name: str, new: str) -> None:
        """ALTER TABLE … RENAME COLUMN."""
        info = self.to_alter(table)
        self._alter(table, attributes=info.with_attribute(info.attribute(name)._replace(name=new)).attributes)

    def set_key(self, table: str, columns: Sequence[str]) -> None:
        """ALTER TABLE … DROP CONSTRAINT, ADD PRIMARY KEY."""
        info = self.to_alter(table)
        numbers = tuple(info.attribute(each).number for each in columns)
        rest = tuple(each for each in info.indexes if not each.is_primary)
        self._alter(table, indexes=(UniqueIndex(f"{info.name}_pkey", numbers, is_primary=True), *rest))

    def set_identity(self, table: str, identity: str) -> None:
        """ALTER TABLE … REPLICA IDENTITY: ``d`` for DEFAULT, ``f`` for FULL, ``n`` for NOTHING."""
        assert identity in ("d", "f", "n"), "not modelled"
        self._alter(table, identity=identity)

    def lock(self, table: str, mode: str = ALTER) -> None:
        """LOCK TABLE, with the name that ``pg_locks`` has for the mode."""
        self.lock_oid(self._table(table).oid, mode)

    def create_publication(self, name: str, tables: Sequence[str] | None) -> None:
        """CREATE PUBLICATION … FOR TABLE, or FOR ALL TABLES if ``tables`` is None."""
        if name in self._publications():
            raise failure(errors.DuplicateObject, f'publication "{name}" already exists')
        infos = [self._table(each) for each in tables or ()]
        for info in infos:
            self.lock_oid(info.oid, PUBLISH)
        entries = {info.oid: self.server.new_oid() for info in infos}
        made = WorldPublication(name, self.server.new_oid(), self._work().xid, tables is None, entries)
        self._publish(lambda publications: publications.update({name: made}))

    def alter_publication(
        self, name: str, *, add: Iterable[str] = (), drop: Iterable[str] = (), to: Iterable[str] | None = None
    ) -> None:
        """ALTER PUBLICATION … ADD TABLE, DROP TABLE or SET TABLE (``to``)."""
        before = self._publications().get(name)
        if before is None:
            raise failure(errors.UndefinedObject, f'publication "{name}" does not exist')
        added, dropped = ({self._table(each).oid: each for each in names} for names in (add, drop))
        for oid, table in added.items():
            if oid in before.entries:
                raise failure(errors.DuplicateObject, f'relation "{table}" is already member of publication "{name}"')
        for oid, table in dropped.items():
            if oid not in before.entries:
                raise failure(errors.UndefinedObject, f'relation "{table}" is not part of the publication')
        if to is not None:
            wanted = {self._table(each).oid: each for each in to}
            added = {oid: table for oid, table in wanted.items() if oid not in before.entries}
            dropped = {oid: "" for oid in before.entries if oid not in wanted}
        for oid in (*added, *dropped):
            self.lock_oid(oid, PUBLISH)
        self._work()
        entries = {oid: self.server.new_oid() for oid in added}
        self._publish(lambda publications: _renew(publications, name, entries, dropped.keys()))

    def drop_publication(self, name: str) -> None:
        """DROP PUBLICATION."""
        assert name in self._publications()
        self._work()
        self._publish(lambda publications: publications.pop(name))

    # What statements are made of.

    def emit_message(self) -> None:
        """Emit a logical message that no publication carries."""
        self._work()
        self.server.advance(64)

    def find(self, table: str) -> WorldTable | None:
        """Returns a table as this transaction has it."""
        namespace, name = split(table)
        for own in self.tables.values():
            if own is not None and (own.namespace, own.name) == (namespace, name):
                return own
        found = self.server.find(namespace, name)
        return None if found is None or found.oid in self.tables else found

    def lock_oid(self, oid: int, mode: str) -> None:
        """Take a lock on a table, unless the transaction has it.

        Raises:
            WouldWait: somebody else holds a lock that conflicts.
        """
        if (oid, mode) in self.locks:
            return
        if self.server.blocking(oid, mode, self):
            raise WouldWait
        self.server.locks.setdefault(oid, []).append((self, mode))
        self.locks.append((oid, mode))

    def to_write(self, table: str) -> WorldTable:
        """Returns a table that is locked for writing."""
        info = self._table(table)
        self.lock_oid(info.oid, WRITE)
        return info

    def to_alter(self, table: str) -> WorldTable:
        """Returns a table that nobody else uses."""
        info = self._table(table)
        self.lock_oid(info.oid, ALTER)
        return info

    def replace_file(self, table: str, versions: Iterable[RowVersion]) -> None:
        """Write the table into another file, with these versions packed from its first block on."""
        info, work = self.to_alter(table), self._work()
        filenode = self.server.new_file()
        heap = self.server.heaps[filenode]
        for place, version in enumerate(versions):
            heap.add(version.cells, version.writer, place // 2)
            heap.versions[-1].remover = version.remover
        self._change(replace(info, filenode=filenode), work)

    def _table(self, table: str) -> WorldTable:
        found = self.find(table)
        if found is None:
            raise failure(errors.UndefinedTable, f'relation "{table}" does not exist')
        return found

    def _alter(self, table: str, **to: Any) -> None:
        info, work = self.to_alter(table), self._work()
        self._change(replace(info, **to), work)

    def _change(self, info: WorldTable, work: Work) -> None:
        self.tables[info.oid] = info
        self.altered.add(info.oid)
        self._keep(Change(self.server.advance(128), "X", info, work))

    def _publications(self) -> dict[str, WorldPublication]:
        """Returns the publications as this transaction has them."""
        if not self.publication_changes:
            return self.server.publications
        publications = dict(self.server.publications)
        for _, change in self.publication_changes:
            change(publications)
        return publications

    def _publish(self, change: PublicationChange) -> None:
        self._work()
        self.publication_changes.append((self.server.advance(128), change))

    def _place(self, name: str) -> int:
        names = [each.name for each in self._savepoints]
        assert name in names, f"no savepoint {name}"
        return len(names) - 1 - names[::-1].index(name)

    def take_xid(self) -> int:
        """Returns its transaction id, which it gets now if it has written nothing (``pg_current_xact_id``)."""
        self._work()
        return self.xid

    def _work(self) -> Work:
        """Returns what the present subtransaction writes as; parents have smaller ids."""
        if not self.xid:
            self.xid = self.server.new_xid()
            self.server.running[self.xid] = self
            self.works.append(Work(self.xid, self))
        work = self.works[0]
        for savepoint in self._savepoints:
            if savepoint.work is None:
                savepoint.work = Work(self.server.new_xid(), self)
                self.works.append(savepoint.work)
            work = savepoint.work
        return work

    def _log(
        self,
        kind: str,
        info: WorldTable,
        *,
        old: Cells | None = None,
        new: Cells | None = None,
        kept: frozenset[int] = frozenset(),
        others: tuple[WorldTable, ...] = (),
    ) -> None:
        lsn = self.server.advance(64 + sum(len(cell or b"") for cell in new or ()))
        self._keep(Change(lsn, kind, info, self._work(), old, new, kept, others))

    def _keep(self, change: Change) -> None:
        self.changes.append(change)
        self.written.append(change)

    def _store(self, info: WorldTable, cells: Cells, work: Work) -> None:
        heap: Heap = self.server.heaps[info.filenode]
        heap.add(cells, work, self.server.turns.rng.choice([*heap.free_blocks(), heap.blocks]))

    def _cells(self, info: WorldTable, row: Row) -> Cells:
        unknown = row.keys() - info.by_name.keys()
        assert not unknown, f"{info.name} has no column {unknown}"
        return tuple(None if each.is_dropped else row.get(each.name, each.default) for each in info.attributes)

    def _is_out(self, attribute: Attribute, cells: Cells) -> bool:
        """Whether a value is stored out of line."""
        value = cells[attribute.number - 1]
        return value is not None and len(value) > self.server.toast_bytes and attribute.type_oid in VARIABLE

    def _find(self, info: WorldTable, where: Row) -> RowVersion | None:
        """Returns the row that an UPDATE or DELETE would change.

        Raises:
            WouldWait: somebody else has changed it, and is not over.
        """
        wanted = [(info.attribute(name).number, value) for name, value in where.items()]
        for version in reversed(self.server.heaps[info.filenode].current):
            if all(info.cell(version.cells, number) == value for number, value in wanted):
                top = version.writer.top
                if version.writer.is_undone or not (top is self or top.is_shown):
                    continue
                if self._is_live(version):
                    return version
        return None

    def _is_live(self, version: RowVersion) -> bool:
        """Whether nobody has removed a version. Raises ``WouldWait`` when that is not decided."""
        remover = version.remover
        if remover is None or remover.is_undone:
            return True
        if remover.top is self or remover.top.is_shown:
            return False
        raise WouldWait

    def _refuse_duplicate(self, info: WorldTable, cells: Cells, own: RowVersion | None) -> None:
        for index in info.indexes:
            wanted = [(number, cells[number - 1]) for number in index.numbers]
            assert all(value is not None for _, value in wanted), "a key is not null"
            for version in self.server.heaps[info.filenode].current:
                if version is own or version.writer.is_undone:
                    continue
                if not all(info.cell(version.cells, number) == value for number, value in wanted):
                    continue
                if self._is_live(version):
                    if version.writer.top is not self and not version.writer.top.is_shown:
                        raise WouldWait
                    raise failure(errors.UniqueViolation, f"duplicate key value violates {index.name}")

    def _refuse_without_identity(self, info: WorldTable, doing: str) -> None:
        is_published = any(each.carries(info.oid) for each in self._publications().values())
        if is_published and not info.identity_numbers:
            raise failure(
                errors.ObjectNotInPrerequisiteState,
                f'cannot {doing} table "{info.name}" because it does not have a replica identity',
            )

    def _unlock(self, since: int) -> None:
        for oid, mode in self.locks[since:]:
            self.server.locks[oid].remove((self, mode))
        del self.locks[since:]


def split(table: str) -> tuple[str, str]:
    """Returns schema and name of a table; the schema is ``public`` if none is named."""
    namespace, dot, name = table.partition(".")
    return (namespace, name) if dot else ("public", namespace)


def _forget(publications: dict[str, WorldPublication], oid: int) -> None:
    for each in list(publications.values()):
        if oid in each.entries:
            _renew(publications, each.name, {}, {oid})


def _renew(
    publications: dict[str, WorldPublication], name: str, added: Mapping[int, int], dropped: Iterable[int]
) -> None:
    before = publications.get(name)
    if before is not None:
        kept = {oid: entry for oid, entry in before.entries.items() if oid not in set(dropped)}
        publications[name] = replace(before, entries={**kept, **added})
