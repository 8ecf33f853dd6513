"""The mirror job: opens the lake and the topics, and copies until told to stop."""

from __future__ import annotations

import signal
import sys
import threading
from contextlib import closing

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from cdc.contract.jobspec.mirror import MirrorJob
from cdc.spark.errors import JobError
from cdc.spark.mirror.parquet import ParquetMirror
from cdc.spark.mirror.stream import MirrorStream
from cdc.spark.offsets import Brokers
from cdc.spark.session import open_session


def main(document: str) -> int:
    """Run the job that ``document`` describes; SIGTERM and Ctrl-C end it between two batches.

    Raises:
        JobError: it could not go on, or was stopped before it had copied all that it was started for.
    """
    job = MirrorJob.model_validate_json(document)
    stop = threading.Event()
    # Before the session, which takes seconds to open, and would be killed in the middle.
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with open_session(job.spark, "cdc mirror") as spark:
        # Behind the session, which takes SIGINT for itself.
        signal.signal(signal.SIGINT, lambda *_: stop.set())
        mirror(spark, job, stop)
    return 0


def mirror(spark: SparkSession, job: MirrorJob, stop: threading.Event) -> None:
    """Copy in this process.

    Raises:
        JobError: it could not go on.
    """
    # Names of PostgreSQL may differ in case alone.
    spark.conf.set("spark.sql.caseSensitive", "true")
    with closing(Brokers(job.kafka)) as brokers, closing(ParquetMirror(spark, job)) as lake:
        stream = MirrorStream(spark, job, lake, brokers, stop)
        sys.stderr.write(f"mirroring {len(job.tables)} tables\n")
        try:
            stream.run()
        except PySparkException as error:
            raise JobError(
                f"the stream ended: {str(error).splitlines()[0]}",
                remedy="start again: nothing of its last batch counts",
            ) from error
        sys.stderr.write(f"mirrored {stream.throughput}\n")
