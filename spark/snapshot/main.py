"""The snapshot job: finds the point, folds each topic there, proves the result, writes Parquet, then the manifest."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pyspark
from pyspark.errors import PythonException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn

from cdc.base.lsn import LSN
from cdc.base.words import counted
from cdc.contract.jobspec.deployment import JobTable
from cdc.contract.jobspec.snapshot import AsOfLsn, AsOfNow, AsOfOffsets, AsOfTime, SnapshotJob
from cdc.spark.added_partitions import refuse_added_partitions
from cdc.spark.errors import JobError, PastErased, TopicUnreadable
from cdc.spark.offsets import Brokers, Extent
from cdc.spark.reconcile.home import is_stray
from cdc.spark.session import CONNECTOR_VERSION, open_session
from cdc.spark.snapshot.definitions import columns_of, definitions_of
from cdc.spark.snapshot.fold import Totals, below_lsn, below_offsets, fold, state_rows, totals, with_headers
from cdc.spark.snapshot.folders import MANIFEST, begun, rotate, snapshot_name
from cdc.spark.snapshot.history import history_log, prefer_histories
from cdc.spark.snapshot.manifest import Manifest, TableManifest
from cdc.spark.snapshot.newest import Log, read_on, unread
from cdc.spark.snapshot.point import PublishedPoint, point_at, refuse_unless_whole, wait_published
from cdc.spark.snapshot.proof import commit_time, refuse_unless_exact
from cdc.spark.snapshot.rows import RowDecoder

_FILE_BYTES: Final = 256 * 1024 * 1024
"""How much JSON goes into one file. It makes 10 to 100 MB of Parquet, a size that readers handle well."""

_SETTINGS: Final[Mapping[str, str]] = {
    # In PostgreSQL, names that differ only in case are two columns.
    "spark.sql.caseSensitive": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # PostgreSQL counts days and microseconds in the proleptic Gregorian calendar; Spark must not rebase old dates.
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}


def main(document: str) -> int:
    """Runs the job that ``document`` describes, and returns its exit code."""
    job = SnapshotJob.model_validate_json(document)
    name = snapshot_name(datetime.now(UTC))
    folder = Path(job.folder)
    with begun(folder, name) as place, open_session(job.spark, "cdc snapshot") as spark:
        manifest = take(spark, job, place, name)
    gone = rotate(folder, job.keep) if job.keep is not None else []
    rows = ", ".join(f"{each.table} {each.rows} rows" for each in manifest.tables)
    sys.stdout.write(f"{folder / name}: {rows}, as of {manifest.lsn or 'the offsets given'}\n")
    sys.stdout.writelines(f"removed {each}\n" for each in gone)
    return 0


def take(spark: SparkSession, job: SnapshotJob, place: Path, name: str) -> Manifest:
    """Writes the tables and the manifest into ``place``.

    Raises:
        JobError: the state at that point cannot be proven, or something cannot be read.
    """
    for setting, value in _SETTINGS.items():
        spark.conf.set(setting, value)
    brokers = Brokers(job.kafka)
    try:
        published = wait_published(brokers, job.stream, LSN.parse(job.fence))
        if isinstance(job.as_of, AsOfNow):
            published, logs = read_on(spark, job, brokers, published)
        else:
            logs = {each.topic: unread(spark, job.kafka, brokers.extent(each.topic)) for each in job.tables}
        histories = _histories(spark, job, brokers)
        refuse_added_partitions(
            brokers, job.stream.name, [each.extent for each in (*logs.values(), *histories.values())]
        )
        lsn = _point(job, published, logs, histories)
        if lsn is not None:
            logs = prefer_histories(job.tables, logs, histories, published, lsn)
        written = [
            _write_table(spark, job, brokers, table, logs[table.topic], published, lsn, place) for table in job.tables
        ]
    except PythonException as error:
        raise TopicUnreadable(_cause(error), remedy="find out what wrote that record with cdc health") from error
    finally:
        brokers.close()
    manifest = Manifest(
        name=name,
        as_of=job.as_of,
        lsn=None if lsn is None else str(lsn),
        slot=job.stream.slot,
        tables=tuple(written),
        spark_version=pyspark.__version__,
        connector_version=CONNECTOR_VERSION,
    )
    (place / MANIFEST).write_text(manifest.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return manifest


def _histories(spark: SparkSession, job: SnapshotJob, brokers: Brokers) -> Mapping[str, Log]:
    """Returns the history of each table that has one, by state topic. Only a past commit needs them."""
    if not isinstance(job.as_of, AsOfLsn | AsOfTime):
        return {}
    return {
        each.topic: history_log(spark, job.kafka, brokers.extent(each.history_topic))
        for each in job.tables
        if each.history_topic is not None
    }


def _point(
    job: SnapshotJob, published: PublishedPoint, logs: Mapping[str, Log], histories: Mapping[str, Log]
) -> LSN | None:
    """Returns the position that bounds all tables; None when offsets bound them."""
    if isinstance(job.as_of, AsOfOffsets):
        _refuse_unknown_offsets(job.as_of, {topic: log.extent for topic, log in logs.items()})
        return None
    if isinstance(job.as_of, AsOfLsn):
        return point_at(job.as_of.lsn, published)
    if isinstance(job.as_of, AsOfTime):
        if job.as_of.time_us > job.fence_us:
            raise JobError("--as-of is in the future", remedy="leave --as-of out for the newest state")
        # States and histories both count: either may have lost a commit that the other still has.
        looked_at = [*logs.values(), *histories.values()]
        later = [_first_commit_after(with_headers(each.records), job.as_of.time_us) for each in looked_at]
        return min([published.lsn, *(lsn for lsn in later if lsn is not None)])
    return published.lsn


def _first_commit_after(records: DataFrame, time_us: int) -> LSN | None:
    """Returns the first commit after ``time_us``. Backfilled rows do not count: they carry the backfill's time."""
    streamed = records.where(fn.contains("header", fn.lit(";xid=")) & (fn.col("commit_us") > time_us))
    found = streamed.agg(fn.min("lsn")).collect()[0][0]
    return None if found is None else LSN(found)


def _refuse_unknown_offsets(asked: AsOfOffsets, extents: Mapping[str, Extent]) -> None:
    for topic, offsets in asked.offsets.items():
        if topic not in extents:
            raise JobError(f"--offsets names {topic}", remedy=f"the topics are {', '.join(sorted(extents))}")
        for partition, offset in offsets.items():
            ends = extents[topic].ends
            if partition >= len(ends) or offset > ends[partition]:
                raise JobError(
                    f"--offsets: {topic} has no offset {offset} in partition {partition}",
                    remedy=f"its partitions end at {', '.join(map(str, ends))}",
                )


def _write_table(
    spark: SparkSession, job: SnapshotJob, brokers: Brokers, table: JobTable, log: Log, published: PublishedPoint,
    lsn: LSN | None, place: Path,
) -> TableManifest:  # fmt: skip
    refuse_unless_whole(published, table.qualified_name, published.lsn if lsn is None else lsn)
    # A key in the wrong partition was put there by another program; neither it nor its tombstone is the row's state.
    strays = is_stray(fn.col("key"), fn.col("partition"), len(log.extent.ends))
    records = with_headers(log.records).where(~strays)
    # After the topic's ends were pinned, so that no record has a definition that is not among them.
    definitions = definitions_of(brokers, job.stream.name, table)
    below = _below(job, table, lsn)
    folded = fold(records, below, may_be_late=published.may_be_late, definitions=definitions.values())
    found = totals(folded)
    _refuse_foreign(table, found)
    _refuse_late(table, found)
    if not log.is_proven:
        newest = isinstance(job.as_of, AsOfNow)
        try:
            refuse_unless_exact(spark, job.kafka, brokers, table, log.extent, folded, log.began_ms, newest=newest)
        except PastErased as error:
            raise PastErased(error.message, remedy=log.remedy or error.remedy) from error
    definition = definitions.get(found.newest_schema or "")
    decoder = RowDecoder(
        columns_of(table, definition),
        {each: [column.name for column in known.columns] for each, known in definitions.items()},
    )
    files = 1 + found.row_bytes // _FILE_BYTES
    rows = state_rows(folded).coalesce(files).mapInArrow(decoder.decode, decoder.spark_schema())
    rows.write.parquet((place / table.topic).as_uri(), compression="zstd")
    brokers.refuse_another(log.extent)
    return TableManifest(
        table=table.qualified_name,
        topic=log.extent.topic,
        topic_id=log.extent.topic_id,
        folder=table.topic,
        key=table.key,
        first_offsets=log.extent.starts,
        end_offsets=log.extent.ends,
        newest_commit=None if found.newest is None else commit_time(found.newest),
        records=found.records,
        rows=found.rows,
        tombstones=found.tombstones,
        hash="".join(f"{each:016x}" for each in found.sums),
        definition=definition.fingerprint if definition is not None else "",
        definitions=tuple(sorted(definitions)),
    )


def _below(job: SnapshotJob, table: JobTable, lsn: LSN | None) -> Column:
    if lsn is not None:
        return below_lsn(lsn)
    assert isinstance(job.as_of, AsOfOffsets)
    return below_offsets(job.as_of.offsets.get(table.topic, {}))


def _refuse_foreign(table: JobTable, found: Totals) -> None:
    if found.foreign:
        raise TopicUnreadable(
            f"topic {table.topic} holds {found.foreign} records that the bridge did not write",
            remedy="see which with cdc health",
        )


def _refuse_late(table: JobTable, found: Totals) -> None:
    if found.late:
        raise PastErased(
            f"{table.qualified_name}: the newest record of {counted(found.late, 'key')} is one that a suspended bridge "
            "wrote late, after newer records; compaction may have erased a newer one",
            remedy=f"publish the table again with cdc backfill {shlex.quote(table.qualified_name)} --sweep, "
            "then try again",
        )


def _cause(error: PythonException) -> str:
    """Returns the last line of a worker's traceback that names an error."""
    lines: Sequence[str] = [line for line in str(error).strip().splitlines() if "Error: " in line]
    return lines[-1].strip() if lines else "a value could not be decoded"
