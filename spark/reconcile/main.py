"""The reconcile job: compares each table in turn and writes one report.

A table that could not be compared is *not verified*, never *identical*.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from contextlib import AbstractContextManager, ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import SparkSession

from cdc.contract.jobspec.deployment import LakeSettings
from cdc.contract.jobspec.parent import NO_ANSWER
from cdc.contract.jobspec.reconcile import ReconcileJob
from cdc.spark.certify.certificate import certificate_file, certificate_of
from cdc.spark.errors import SourceUnreadable
from cdc.spark.mirror.formats import with_format
from cdc.spark.offsets import Brokers
from cdc.spark.reconcile.bridge_progress import BridgeProgress
from cdc.spark.reconcile.comparison import Stopwatch
from cdc.spark.reconcile.identity import identity_of, read_identity, refuse_another, write_identity
from cdc.spark.reconcile.run_folder import RunFolder, occupied
from cdc.spark.reconcile.selection import refuse_unknown
from cdc.spark.reconcile.table_report import Judge, JudgedTable
from cdc.spark.replicas.lake import refuse_no_lake
from cdc.spark.report.model import Report, Source, SparkEngine, Stage, Verdict
from cdc.spark.report.redact import redacted
from cdc.spark.report.text import as_text
from cdc.spark.report.write import write_all
from cdc.spark.session import CONNECTOR_VERSION, open_session
from cdc.spark.source.held_snapshot import connect, reading

_EXIT_CODES: Final[dict[Verdict, int]] = {"identical": 0, "different": 1, "not_verified": 2}


class SourceTimeline(NamedTuple):
    """The source and its timeline, which changes with each failover or restore."""

    source: Source
    timeline: int

    def __str__(self) -> str:
        return f"{self.source.system_identifier}, timeline {self.timeline}"


def main(document: str) -> int:
    """Runs the job: writes the report to the job's folder and its text to standard output.

    Raises:
        JobError: nothing could be compared at all.
    """
    # Without this handler SIGTERM would end Python at once, with rows in the folder and the snapshot open.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(NO_ANSWER))
    job = ReconcileJob.model_validate_json(document)
    settings = with_format(job.spark, job.replica.system) if isinstance(job.replica, LakeSettings) else job.spark
    report = reconcile(job, open_session(settings, f"cdc reconcile {job.stream.name}"))
    written = write_all(report, Path(job.folder))
    sys.stdout.write(as_text(report) + f"\nreport: {written.html}\n")
    return report.exit_code


def reconcile(job: ReconcileJob, session: AbstractContextManager[SparkSession]) -> Report:
    """Compares the tables, and prints nothing but progress.

    Args:
        job: the run.
        session: entered only after the servers have answered, because it starts Spark.

    Raises:
        JobError: nothing could be compared at all.
    """
    refuse_unknown(job)
    if isinstance(job.replica, LakeSettings):
        refuse_no_lake(job.replica, job.tables)
    started, watch = _now(), Stopwatch()
    with ExitStack() as stack:
        folder = stack.enter_context(occupied(job))
        certificates = stack.enter_context(certificate_file(job.certificate))
        server = timeline_of(job)
        brokers = Brokers(job.kafka)
        stack.callback(brokers.close)
        _begin(job, server, brokers, folder)
        bridge = BridgeProgress(job.kafka, job.stream, brokers)
        stack.callback(bridge.close)
        bridge.catch_up()
        if bridge.system_identifier != server.source.system_identifier:
            raise SourceUnreadable(
                f"the topics come from server {bridge.system_identifier}, but"
                f" {job.source.host}:{job.source.port} is server {server.source.system_identifier}",
                remedy="point source.dsn to the server that the bridge reads",
            )
        with watch.timing("start of Spark"):
            spark = stack.enter_context(session)
        judge = Judge(job, spark, brokers, bridge, str(server), folder.work)
        with watch.timing("small tables together"):
            judge.small_tables()
        judged = [judge.table(each) for each in job.tables]
        report = _report(job, server.source, spark.version, started, watch, judged)
        if certificates is not None and (
            certificate := certificate_of(job, report, server.timeline, [each.fold for each in judged])
        ):
            certificates.add(certificate)
        if not any(each.broke_off for each in judged):
            folder.done()
    return redacted(report) if job.redact else report


def _begin(job: ReconcileJob, server: SourceTimeline, brokers: Brokers, folder: RunFolder) -> None:
    """Notes which comparison this is, and refuses to resume another one."""
    topics = {each.topic for each in job.tables}
    identity = identity_of(job, str(server), brokers.topic_ids(topics))
    begun = read_identity(folder.identity)
    if begun is not None:
        refuse_another(begun, identity)
    write_identity(folder.identity, identity)


def _report(
    job: ReconcileJob, source: Source, spark_version: str, started: str, watch: Stopwatch, judged: list[JudgedTable]
) -> Report:
    tables = tuple(each.report for each in judged)
    return Report(
        run=job.run,
        started_at=started,
        ended_at=_now(),
        verdict=_worst({each.verdict for each in tables}),
        exit_code=_EXIT_CODES[_worst({each.verdict for each in tables})],  # type: ignore[arg-type]  # a Literal
        source=source,
        kafka=job.kafka.options["bootstrap.servers"],
        engine=SparkEngine(
            tool_version=job.tool_version,
            spark_version=spark_version,
            connector_version=CONNECTOR_VERSION,
            master=job.spark.master,
        ),
        redacted=job.redact,
        stages=tuple(Stage(name=name, seconds=seconds) for name, seconds in watch.seconds.items()),
        tables=tables,
    )


def timeline_of(job: ReconcileJob) -> SourceTimeline:
    """Asks the source who it is.

    Raises:
        JobError: it does not answer.
    """
    with contextlib.closing(connect(job.source)) as conn, reading("asking who it is"):
        row = conn.execute(
            "SELECT pg_catalog.current_setting('server_version'), system_identifier::text, timeline_id"
            " FROM pg_catalog.pg_control_system(), pg_catalog.pg_control_checkpoint()"
        ).fetchone()
        assert row is not None
    source = Source(
        host=job.source.host,
        port=job.source.port,
        database=job.source.database,
        server_version=row[0],
        system_identifier=row[1],
    )
    return SourceTimeline(source, row[2])


def _worst(verdicts: set[Verdict]) -> Verdict:
    order: tuple[Verdict, ...] = ("different", "not_verified", "identical")
    return next(each for each in order if each in verdicts)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
