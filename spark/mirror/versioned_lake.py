"""A lake of tables with versions. Each batch is one commit per table, which merges the last record of each key.

The commit carries the position that the table has from then on: rows and offsets appear together, and nothing else says
where to go on. Whoever finds that another process changed rows ends.

The columns have the types of a snapshot. What a type cannot hold is in ``_beyond``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import StringType, StructField, StructType

from cdc.base.crashpoints import reach
from cdc.base.lsn import LSN
from cdc.contract.jobspec.mirror import MirrorJob
from cdc.spark.errors import JobError
from cdc.spark.mirror.cut_log import CutLog, CutTable
from cdc.spark.mirror.definitions import Definitions
from cdc.spark.mirror.folder import hold
from cdc.spark.mirror.position import KeyAside, LakePosition
from cdc.spark.mirror.records import FIND_WRITER, SPARK_FAILED, came_again, is_refusal, without
from cdc.spark.mirror.typed_rows import (
    DELETED,
    KEY,
    REFUSED,
    TypedForm,
    holds_all,
    names_that_clash,
    quoted,
    typed_form,
)
from cdc.spark.mirror.versioned import MARKS, OTHER_FOLDER, VersionedFormat, VersionedTable

_MARK: Final = f"{MARKS}topic"
_NO_COLUMNS: Final = StructType([StructField(KEY, StringType())])


class LakeVersion(NamedTuple):
    """A table's newest version, and the position that its rows have."""

    version: int
    position: LakePosition


class VersionedLake:
    """The folder with the tables. It allows one writer at a time.

    Args:
        spark: a session that knows the format.
        job: names the folder and the tables.
        tables: the format.

    Raises:
        JobError: the folder is not writable, holds other tables, or another process writes into it.
    """

    def __init__(self, spark: SparkSession, job: MirrorJob, tables: VersionedFormat) -> None:
        self._spark = spark
        self._job = job
        self._format = tables
        self._root = Path(job.path).absolute()
        self._of_topic = {table.topic: table for table in job.tables}
        self._tables = {topic: tables.table(topic) for topic in self._of_topic}
        self._forms: dict[str, TypedForm] = {}
        for topic, table in self._tables.items():
            self._refuse_another(topic, table)
        self._cuts = CutLog(spark, tables)
        self._lock = hold(self._root)
        try:
            tables.open()
            self._states = {topic: self._read(topic) for topic, table in self._tables.items() if table.exists()}
        except BaseException:
            self._lock.close()
            raise

    def close(self) -> None:
        """Releases the folder for the next writer."""
        self._lock.close()

    def positions(self) -> Mapping[str, LakePosition]:
        """Returns the position of each table, by topic."""
        return {topic: state.position for topic, state in self._states.items()}

    def versions(self) -> Mapping[str, int]:
        """Returns the newest version of each table, by topic."""
        return {topic: state.version for topic, state in self._states.items()}

    def lacking(self) -> Iterator[str]:
        """Yields lines about the keys that stand aside: how many of each table, and which."""
        for topic, state in self._states.items():
            if aside := state.position.aside:
                name = self._of_topic[topic].qualified_name
                yield f"warning: {name}: keys that stand aside, without a row: {len(aside)}\n"
                yield from (f"  {_told(topic, each)}\n" for each in aside)

    def forget(self) -> None:
        """Starts over with empty tables, at no position."""
        self._cuts.forget(self._of_topic)
        for topic, state in self._states.items():
            # The number goes on: a batch whose number was there before would be taken for another process's.
            emptied = replace(LakePosition(), batch=state.position.batch + 1)
            self._overwrite(topic, self._spark.createDataFrame([], _NO_COLUMNS), emptied)

    def establish(self, definitions: Definitions) -> None:
        """Learns the columns, at the start and after each new definition; makes and alters the tables.

        Raises:
            JobError: the format cannot hold the columns, or a column's type changed to one that its values do not tell.
        """
        for topic, table in self._tables.items():
            form = self._forms[topic] = typed_form(definitions, topic)
            names = form.schema().fieldNames()
            if clash := names_that_clash([DELETED, *names]):
                raise JobError(
                    f"the table of {topic} has the columns {clash[0]!r} and {clash[1]!r}, which are one for "
                    f"{self._format.name} or a name that the mirror needs for itself",
                    remedy="rename the column, leave the table out, or mirror it with --to parquet:DIR",
                )
            if not table.exists():
                self._create(topic, form)
            else:
                self._alter(topic, form)
        self._cuts.make()

    def apply(self, topic: str, latest: DataFrame, position: LakePosition) -> None:
        """Applies one topic's part of a batch in one commit: rows and position together.

        Args:
            topic: the topic.
            latest: the last record of each key: ``key``, ``value``, ``partition``, ``offset``, ``header``.
            position: where the table stands with these records.

        Raises:
            JobError: another process wrote in the same moment.
        """
        if position.aside:
            position = position.putting_aside(came_again(latest, position.aside), ())
        try:
            self._write(topic, latest, position)
        except SPARK_FAILED as error:
            if not (is_refusal(error) and (self._job.quarantine or self._states[topic].position.aside)):
                raise
            # Nothing was committed. The records that are in the way are looked for only now: mostly there are none.
            refused = self._refused(topic, latest, position)
            position = position.putting_aside({}, refused)
            self._write(topic, without(latest, refused), position)
        if position.batch % self._job.compact_every == self._job.compact_every - 1:
            self._tables[topic].compact(_as_text(topic, position))
            reach("mirror.after_compaction")
            self._note_commit(topic, position)

    def _write(self, topic: str, latest: DataFrame, position: LakePosition) -> None:
        """Commits a batch, and says which keys stand aside with it."""
        form, table, tells = self._forms[topic], self._tables[topic], _as_text(topic, position)
        changes = latest.mapInArrow(form.convert, form.batch_schema())
        former = self._states[topic].position
        reach("mirror.before_table_commit")
        if former.offsets:
            table.merge(changes, tells, position.batch)
        else:
            table.append(changes.where(~fn.col(DELETED)).drop(DELETED), tells, position.batch)
        reach("mirror.after_table_commit")
        self._note_commit(topic, position)
        for each in sorted(set(position.aside) - set(former.aside)):
            sys.stderr.write(f"warning: put aside: {_told(topic, each)}\n")

    def _refused(self, topic: str, latest: DataFrame, position: LakePosition) -> list[KeyAside]:
        """Returns the records of a batch that cannot be read. Some may stand aside already, and be read again.

        Raises:
            JobError: with the others more keys would stand aside than may.
        """
        former, allowed = self._states[topic].position.aside, self._job.quarantine
        found = latest.mapInArrow(self._forms[topic].refused, REFUSED)
        refused = [KeyAside(*row) for row in found.limit(max(allowed, len(former)) + 1).collect()]
        new = sorted(set(refused) - set(former))
        if new and len(position.putting_aside({}, refused).aside) > allowed:
            raise JobError(
                f"{_told(topic, new[0])} (keys of this table that stand aside already: {len(former)}; "
                f"--quarantine allows no more than {allowed})",
                remedy=FIND_WRITER,
            )
        return refused

    def move(self, topic: str, position: LakePosition) -> None:
        """Notes a position that needs no rows; the next cut keeps it."""
        self._states[topic] = self._states[topic]._replace(position=position)

    def cut(self, lsn: LSN, at_ms: int, exact: Mapping[str, bool]) -> None:
        """Writes a cut of all tables, and from time to time removes what no kept cut needs."""
        tended_ms = self._cuts.tended_ms or at_ms
        is_due = at_ms - tended_ms > self._format.tend_every_ms
        reach("mirror.before_cut")
        self._cuts.write(
            lsn,
            at_ms,
            (
                CutTable(self._of_topic[topic], *state, exact[topic] and not state.position.aside)
                for topic, state in self._states.items()
            ),
            at_ms if is_due else tended_ms,
        )
        reach("mirror.after_cut")
        if is_due:
            self._tend()

    def _tend(self) -> None:
        needed = self._cuts.expire(self._job.keep_days)
        for topic, table in self._tables.items():
            position = self._states[topic].position
            table.tend(needed.get(topic, ()))
            again = replace(position, batch=position.batch + 1)
            self._note_commit(topic, again if table.tell(_as_text(topic, again), again.batch) else position)

    def _refuse_another(self, topic: str, table: VersionedTable) -> None:
        folder, name = table.folder, self._format.name
        if table.exists():
            if table.properties().get(_MARK) != topic:
                raise JobError(f"{folder} holds another table than the mirror of {topic}", remedy=OTHER_FOLDER)
        elif table.is_taken():
            raise JobError(f"{folder} holds files that are not a table of {name}", remedy=OTHER_FOLDER)

    def _read(self, topic: str) -> LakeVersion:
        """Reads the state from the table's commits; the last cut may say that the topic was read further."""
        table = self._tables[topic]
        if not self._job.rebuild and (done := table.changes_of_others()):
            raise JobError(
                f"another program changed rows of {table.folder} ({', '.join(done)})",
                remedy="rebuild the copy with the same command and --rebuild",
            )
        version, position = self._newest(topic)
        if position is None:
            raise JobError(
                f"the commits of {table.folder} do not tell any longer up to where the topic was read",
                remedy="delete this folder, then start again: the table is made anew",
            )
        noted = self._cuts.position(topic)
        if noted is not None and noted.batch > position.batch and not self._job.rebuild:
            raise JobError(
                f"{table.folder} is older than the last cut of the lake, as if it came from a backup",
                remedy="bring back the whole lake as it was at one moment, or rebuild the copies with the same command "
                "and --rebuild",
            )
        if noted is not None and (noted.batch, noted.topic_id) == (position.batch, position.topic_id):
            position = noted
        return LakeVersion(version, position)

    def _newest(self, topic: str) -> tuple[int, LakePosition | None]:
        """Returns the newest version and its position. Both are of one look: another process may go on meanwhile."""
        newest: int | None = None
        for version, told in self._tables[topic].commits():
            newest = version if newest is None else newest
            if position := _position(topic, told):
                return newest, position
        return newest or 0, None

    def _create(self, topic: str, form: TypedForm) -> None:
        if self._cuts.position(topic) is not None:
            self._cuts.forget([topic])  # somebody deleted the table: its versions count from 0 again
        self._tables[topic].create(form.schema(), {_MARK: topic}, _as_text(topic, LakePosition()))
        self._note_commit(topic, LakePosition())

    def _alter(self, topic: str, form: TypedForm) -> None:
        table, position = self._tables[topic], self._states[topic].position
        held, wanted = table.columns(), table.types_of(form.schema())
        if table.alter(form.schema(), _as_text(topic, position)):
            self._note_commit(topic, position)
        changed = [name for name, kind in wanted.items() if held.get(name, kind) != kind]
        if changed:
            self._retype(topic, held, wanted)

    def _retype(self, topic: str, held: Mapping[str, str], wanted: Mapping[str, str]) -> None:
        """Gives columns other types, in one commit that writes all rows anew."""
        for name, kind in wanted.items():
            if not holds_all(kind, held.get(name, kind)):
                raise JobError(
                    f"column {name!r} of {topic} changed its type: it has to be {kind} in the copy now, "
                    f"but the copy has it as {held[name]}, which does not tell each value of the records as {kind}",
                    remedy="rebuild the copy with the same command and --rebuild",
                )
        rows = self._tables[topic].rows()
        columns: list[Column] = [
            fn.col(quoted(name)).cast(wanted.get(name, held.get(name, ""))).alias(name) for name in rows.columns
        ]
        position = self._states[topic].position
        self._overwrite(topic, rows.select(*columns), replace(position, batch=position.batch + 1))

    def _overwrite(self, topic: str, rows: DataFrame, position: LakePosition) -> None:
        self._tables[topic].replace(rows, _as_text(topic, position), position.batch)
        self._note_commit(topic, position)

    def _note_commit(self, topic: str, position: LakePosition) -> None:
        state = self._states.get(topic)
        version = self._tables[topic].committed(-1 if state is None else state.version)
        self._states[topic] = LakeVersion(version, position)


def _told(topic: str, aside: KeyAside) -> str:
    return f"topic {topic}, partition {aside.partition}, offset {aside.offset}, key {aside.key}: {aside.reason}"


def _as_text(topic: str, position: LakePosition) -> str:
    return json.dumps({"cdc_topic": topic, "position": position.as_fields()})


def _position(topic: str, told: str | None) -> LakePosition | None:
    try:
        fields: Any = json.loads(told or "")
        if fields["cdc_topic"] != topic:
            return None
        return LakePosition.from_fields(fields["position"])
    except (ValueError, KeyError, TypeError):
        return None
