"""The mirror job: opens the lake and the topics, and copies until told to stop."""

from __future__ import annotations

import signal
import sys
import threading
from contextlib import ExitStack, closing
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from cdc.contract.jobspec.mirror import MirrorJob
from cdc.spark.errors import JobError
from cdc.spark.mirror.formats import format_of, with_format
from cdc.spark.mirror.parquet import ParquetMirror
from cdc.spark.mirror.rounds import CutRounds
from cdc.spark.mirror.stream import MirrorStream
from cdc.spark.mirror.versioned_lake import VersionedLake
from cdc.spark.offsets import Brokers
from cdc.spark.session import open_session


def main(document: str) -> int:
    """Runs the job that ``document`` describes. SIGTERM and Ctrl-C end it between two batches.

    Raises:
        JobError: the job cannot go on, or was stopped before it had copied everything that it was asked to copy.
    """
    job = MirrorJob.model_validate_json(document)
    stop = threading.Event()
    # Before the session is opened: that takes seconds, and SIGTERM would kill it half-way.
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    settings = job.spark if job.format == "parquet" else with_format(job.spark, job.format)
    with open_session(settings, "cdc mirror") as spark:
        # After the session is open, because pyspark installs its own handler of SIGINT.
        signal.signal(signal.SIGINT, lambda *_: stop.set())
        mirror(spark, job, stop)
    return 0


def mirror(spark: SparkSession, job: MirrorJob, stop: threading.Event) -> None:
    """Copies topics in this process until it is told to stop, or until everything is copied.

    Raises:
        JobError: the copying cannot go on.
    """
    # In PostgreSQL, names that differ only in case are two columns.
    spark.conf.set("spark.sql.caseSensitive", "true")
    with ExitStack() as opened:
        brokers = opened.enter_context(closing(Brokers(job.kafka)))
        stream: CutRounds | MirrorStream
        if job.format == "parquet":
            files = opened.enter_context(closing(ParquetMirror(spark, job)))
            stream = MirrorStream(spark, job, files, brokers, stop)
        else:
            root = Path(job.path).absolute()
            tables = opened.enter_context(closing(format_of(spark, job.format, root, job.keep_days)))
            lake = opened.enter_context(closing(VersionedLake(spark, job, tables)))
            if not job.rebuild:
                sys.stderr.writelines(lake.lacking())
            opened.callback(lambda: sys.stderr.writelines(lake.lacking()))
            stream = CutRounds(spark, job, lake, brokers, stop)
        sys.stderr.write(f"mirroring {len(job.tables)} tables\n")
        try:
            stream.run()
        except PySparkException as error:
            raise JobError(
                f"the stream ended: {str(error).splitlines()[0]}",
                remedy="start again; each table continues where it stands",
            ) from error
        sys.stderr.write(f"mirrored {stream.throughput}\n")
