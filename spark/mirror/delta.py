"""Tables of a Delta lake. Each batch is one commit per table: a MERGE of the last record of each key.

The commit's ``userMetadata`` keeps the position that the table has from then on: rows and offsets appear together, and
nothing else says where to go on. A commit also has the batch's number as Delta's ``txnVersion``, so that a batch which
another process applied in the same moment is not applied twice; who finds another's commit there ends.

The columns have the types of a snapshot. What a type cannot hold is in ``_beyond``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn

from cdc.base.crashpoints import reach
from cdc.base.lsn import LSN
from cdc.contract.jobspec.mirror import MirrorJob
from cdc.spark.errors import JobError
from cdc.spark.mirror.cut_log import CutLog, CutTable
from cdc.spark.mirror.definitions import Definitions
from cdc.spark.mirror.delta_sql import DeltaTable, columns_of, quoted
from cdc.spark.mirror.folder import hold
from cdc.spark.mirror.position import LakePosition
from cdc.spark.mirror.typed_rows import DELETED, KEY, TypedForm, holds_all, names_that_clash, needs_mapping, typed_form

_MARK: Final = "cdc.topic"
_LOG_DAYS: Final = 30
_DAY_MS: Final = 86_400_000
_WITHOUT_ZONE: Final = "timestamp_ntz"
_BATCH: Final = "cdc_batch"
_OTHER_FOLDER: Final = "name another folder"


class LakeVersion(NamedTuple):
    """A table's newest version, and the position that its rows have."""

    version: int
    position: LakePosition


class DeltaMirror:
    """The folder with the tables. It allows one writer at a time.

    Args:
        spark: a session for Delta.
        job: names the folder and the tables.

    Raises:
        JobError: the folder is not writable, holds other tables, or another process writes into it.
    """

    def __init__(self, spark: SparkSession, job: MirrorJob) -> None:
        self._spark = spark
        self._job = job
        self._root = Path(job.path).absolute()
        self._of_topic = {table.topic: table for table in job.tables}
        self._tables = {topic: DeltaTable(spark, self._root / topic) for topic in self._of_topic}
        self._forms: dict[str, TypedForm] = {}
        self._given: dict[str, Mapping[str, str]] = {}
        for topic, table in self._tables.items():
            self._refuse_another(topic, table)
        self._cuts = CutLog(spark, self._root)
        self._lock = hold(self._root)
        self._states = {topic: self._read(topic) for topic, table in self._tables.items() if table.exists()}

    def close(self) -> None:
        """Releases the folder for the next writer."""
        self._lock.close()

    def positions(self) -> Mapping[str, LakePosition]:
        """Returns the position of each table, by topic."""
        return {topic: state.position for topic, state in self._states.items()}

    def versions(self) -> Mapping[str, int]:
        """Returns the newest version of each table, by topic."""
        return {topic: state.version for topic, state in self._states.items()}

    def forget(self) -> None:
        """Starts over with empty tables, at no position."""
        self._cuts.forget(self._of_topic)
        for topic, state in self._states.items():
            # The number goes on: Delta would take a batch whose number was there before for one that is done.
            emptied = replace(LakePosition(), batch=state.position.batch + 1)
            self._overwrite(topic, self._spark.createDataFrame([], f"{KEY} string"), emptied)

    def establish(self, definitions: Definitions) -> None:
        """Learns the columns, at the start and after each new definition; makes and alters the tables.

        Raises:
            JobError: Delta cannot hold the columns, or a column's type changed to one that its values do not tell.
        """
        for topic, table in self._tables.items():
            form = self._forms[topic] = typed_form(definitions, topic)
            names = form.schema().fieldNames()
            if clash := names_that_clash([DELETED, *names]):
                raise JobError(
                    f"the table of {topic} has the columns {clash[0]!r} and {clash[1]!r}, which are one for Delta or a "
                    "name that the mirror needs for itself",
                    remedy="rename the column, leave the table out, or mirror it with --to parquet:DIR",
                )
            if not table.exists():
                self._create(topic, form)
            else:
                self._alter(topic, form)
        self._cuts.make(self._job.keep_days)

    def apply(self, topic: str, latest: DataFrame, position: LakePosition) -> None:
        """Applies one topic's part of a batch in one commit: rows and position together.

        Args:
            topic: the topic.
            latest: the last record of each key: ``key``, ``value``, ``partition``, ``offset``, ``header``.
            position: where the table stands with these records.

        Raises:
            JobError: another process wrote in the same moment.
        """
        form, table = self._forms[topic], self._tables[topic]
        latest.mapInArrow(form.convert, form.batch_schema()).createOrReplaceTempView(_BATCH)
        if self._states[topic].position.offsets:
            statement = (
                f"MERGE INTO {table.name} held USING {_BATCH} batch ON held.{KEY} = batch.{KEY}"
                f" WHEN MATCHED AND batch.{DELETED} THEN DELETE WHEN MATCHED THEN UPDATE SET *"
                f" WHEN NOT MATCHED AND NOT batch.{DELETED} THEN INSERT *"
            )
        else:
            columns = ", ".join(map(quoted, form.schema().fieldNames()))
            statement = f"INSERT INTO {table.name} ({columns}) SELECT {columns} FROM {_BATCH} WHERE NOT {DELETED}"
        reach("mirror.before_table_commit")
        table.run(statement, _as_text(topic, position), position.batch)
        reach("mirror.after_table_commit")
        self._note_commit(topic, position)
        if position.batch % self._job.compact_every == self._job.compact_every - 1:
            table.run(f"OPTIMIZE {table.name}", _as_text(topic, position))
            reach("mirror.after_compaction")
            self._note_commit(topic, position)

    def move(self, topic: str, position: LakePosition) -> None:
        """Notes a position that needs no rows; the next cut keeps it."""
        self._states[topic] = self._states[topic]._replace(position=position)

    def cut(self, lsn: LSN, at_ms: int, exact: Mapping[str, bool]) -> None:
        """Writes a cut of all tables, and once a day removes what no kept cut needs."""
        tended_ms = self._cuts.tended_ms or at_ms
        is_due = at_ms - tended_ms > _DAY_MS
        reach("mirror.before_cut")
        self._cuts.write(
            lsn,
            at_ms,
            (CutTable(self._of_topic[topic], *state, exact[topic]) for topic, state in self._states.items()),
            at_ms if is_due else tended_ms,
        )
        reach("mirror.after_cut")
        if is_due:
            self._tend()

    def _tend(self) -> None:
        self._cuts.expire(self._job.keep_days)
        for topic, table in self._tables.items():
            position = self._states[topic].position
            table.run(f"VACUUM {table.name}", _as_text(topic, position))
            self._note_commit(topic, position)

    def _refuse_another(self, topic: str, table: DeltaTable) -> None:
        folder = table.folder
        if table.exists():
            self._given[topic] = table.properties()
            if self._given[topic].get(_MARK) != topic:
                raise JobError(f"{folder} holds another table than the mirror of {topic}", remedy=_OTHER_FOLDER)
        elif table.is_taken():
            raise JobError(f"{folder} holds files that are not a Delta table", remedy=_OTHER_FOLDER)

    def _read(self, topic: str) -> LakeVersion:
        """Reads the state from the table's commits; the last cut may say that the topic was read further."""
        table = self._tables[topic]
        version, told = table.last_commit()
        position = _position(topic, told) or next(filter(None, (_position(topic, each) for each in table.told())), None)
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

    def _create(self, topic: str, form: TypedForm) -> None:
        if self._cuts.position(topic) is not None:
            self._cuts.forget([topic])  # somebody deleted the table: its versions count from 0 again
        table, properties = self._tables[topic], {_MARK: topic, **self._properties()}
        if any(map(needs_mapping, form.schema().fieldNames())):
            properties["delta.columnMapping.mode"] = "name"
        listed = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
        self._given[topic] = properties
        table.run(
            f"CREATE TABLE {table.name} ({columns_of(form.schema())}) USING delta TBLPROPERTIES ({listed})",
            _as_text(topic, LakePosition()),
        )
        self._note_commit(topic, LakePosition())

    def _alter(self, topic: str, form: TypedForm) -> None:
        table, position = self._tables[topic], self._states[topic].position
        given = self._given[topic]
        other = {name: value for name, value in self._properties().items() if given.get(name) != value}
        held = {field.name: field.dataType.simpleString() for field in table.schema()}
        wanted = {field.name: field.dataType.simpleString() for field in form.schema()}
        added = [name for name in wanted if name not in held]
        if any(map(needs_mapping, added)) and "delta.columnMapping.mode" not in given:
            other["delta.columnMapping.mode"] = "name"
        if _WITHOUT_ZONE in wanted.values() and _WITHOUT_ZONE not in held.values():
            other["delta.feature.timestampNtz"] = "supported"
        statements = []
        if other:
            listed = ", ".join(f"'{name}' = '{value}'" for name, value in other.items())
            statements.append(f"ALTER TABLE {table.name} SET TBLPROPERTIES ({listed})")
            self._given[topic] = {**given, **other}
        if added:
            columns = ", ".join(f"{quoted(name)} {wanted[name]}" for name in added)
            statements.append(f"ALTER TABLE {table.name} ADD COLUMNS ({columns})")
        for statement in statements:
            table.run(statement, _as_text(topic, position))
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
        rows = self._spark.read.format("delta").load(str(self._tables[topic].folder))
        columns: list[Column] = [
            fn.col(quoted(name)).cast(wanted.get(name, held.get(name, ""))).alias(name) for name in rows.columns
        ]
        self._overwrite(topic, rows.select(*columns), self._states[topic].position)

    def _overwrite(self, topic: str, rows: DataFrame, position: LakePosition) -> None:
        table = self._tables[topic]
        with table.telling(_as_text(topic, position)):
            rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(str(table.folder))
        self._note_commit(topic, position)

    def _note_commit(self, topic: str, position: LakePosition) -> None:
        version, told = self._tables[topic].last_commit()
        if told != _as_text(topic, position):
            raise JobError(
                f"another process writes into {self._tables[topic].folder}",
                remedy="stop one of the two, then start again; each table continues where it stands",
            )
        self._states[topic] = LakeVersion(version, position)

    def _properties(self) -> Mapping[str, str]:
        days = self._job.keep_days
        return {
            # Many readers do not know deletion vectors.
            "delta.enableDeletionVectors": "false",
            "delta.deletedFileRetentionDuration": f"interval {days} days",
            "delta.logRetentionDuration": f"interval {max(days, _LOG_DAYS)} days",
        }


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
