"""Keeps a topic's hashes as Parquet, so that the next run reads only what was written since.

For each key and partition it keeps the hash of the newest record that counted at the last snapshot, and every record
that did not count yet. Nothing else can matter later, because a later snapshot sees everything that the earlier one
saw. So the result is exact as long as topic and source are the same and neither was restored to an earlier state. If
that is not certain, the whole topic is read. A log that lost its end and then grew again goes unnoticed; only a run
without kept hashes sees that.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ValidationError
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn

from cdc.contract.jobspec.deployment import STRICT, KafkaSettings
from cdc.contract.record import TableSchema
from cdc.spark.offsets import Extent
from cdc.spark.reconcile.keys import Keys
from cdc.spark.reconcile.topic_records import TOMBSTONE, RecordMoment, hashed
from cdc.spark.source.visibility import VisibleTransactions
from cdc.spark.stored import store
from cdc.spark.topic import read_topic
from cdc.spark.values.avro import opened

_FORM: Final = 3


class _Manifest(BaseModel):
    """Says which hashes are kept, and of which topic and source.

    Attributes:
        form: the version of the Parquet files' layout.
        source: the server of the last snapshot, and its timeline; another one counts transactions differently.
        xmin: the xmin of that snapshot.
        topic_id: Kafka's id of the topic.
        ends: the offsets up to which each partition was read (exclusive).
        folder: the folder of the hashes, beside the manifest.
    """

    model_config = STRICT

    form: int
    source: str
    xmin: int
    topic_id: str
    ends: tuple[int, ...]
    folder: str


class KeptHashes:
    """The kept hashes of one topic.

    Args:
        place: the topic's folder, created if missing; only one run may use it at a time.
        source: system identifier and timeline of the source.
        spark, kafka: the session and the cluster to read with.

    Attributes:
        went_on: True if an earlier run's hashes could be used.
    """

    def __init__(self, place: Path, source: str, spark: SparkSession, kafka: KafkaSettings) -> None:
        self._place = place
        self._source = source
        self._spark = spark
        self._kafka = kafka
        self._next: _Manifest | None = None
        self.went_on = False

    def brought_up_to(
        self, extent: Extent, snapshot: VisibleTransactions, is_foreign: Column, definitions: Iterable[TableSchema] = ()
    ) -> tuple[DataFrame, Extent]:
        """Adds what is new in the topic. The result goes into a new folder; the old hashes stay until ``keep``.

        Args:
            extent: the topic with pinned ends.
            snapshot: the snapshot of the source.
            is_foreign: a boolean column over the topic's records (see ``origin``).
            definitions: all definitions of the topic's records.

        Returns:
            The hashes in the form of ``topic_records.hashed``, and the part of the topic that was read.
        """
        old = self._usable(extent, snapshot)
        self.went_on = old is not None
        news = extent if old is None else extent.after(old.ends)
        records = opened(read_topic(self._spark, self._kafka, news), definitions)
        lines = hashed(records, len(extent.ends), is_foreign)
        if old is not None:
            known = self._spark.read.parquet(str(self._place / old.folder))
            # For the next run a tombstone means the same as no record, and kept ones would pile up.
            matters = fn.col("header").isNotNull() | (fn.col("topic_hash") != TOMBSTONE)
            lines = known.where(matters).unionByName(lines)
        counts = RecordMoment(snapshot=snapshot).counts()
        # Each record that does not count yet forms a group of its own, and keeps its header, which says when it will.
        reduced = lines.groupBy(
            "key_hash",
            "partition",
            fn.when(~counts, fn.col("offset")).alias("open_offset"),
            fn.when(~counts, fn.col("header")).alias("header"),
        ).agg(
            fn.max_by("topic_hash", "offset").alias("topic_hash"),
            fn.max_by("timestamp_ms", "offset").alias("timestamp_ms"),
            fn.max("offset").alias("offset"),
            fn.max("is_stray").alias("is_stray"),
            fn.max_by("is_foreign", "offset").alias("is_foreign"),
        )
        self._place.mkdir(parents=True, exist_ok=True)
        folder = f"hashes-{uuid.uuid4().hex}"
        store(reduced.drop("open_offset"), str(self._place / folder))
        self._next = _Manifest(
            form=_FORM,
            source=self._source,
            xmin=snapshot.xmin,
            topic_id=extent.topic_id,
            ends=extent.ends,
            folder=folder,
        )
        return self._spark.read.parquet(str(self._place / folder)), news

    def keep(self) -> None:
        """Makes the new hashes valid for the next run, in one step, and then removes the old ones."""
        if self._next is None:
            return
        unfinished = self._place / "unfinished.json"
        unfinished.write_text(self._next.model_dump_json(), encoding="utf-8")
        unfinished.replace(self._manifest)
        for each in self._place.glob("hashes-*"):
            if each.name != self._next.folder:
                shutil.rmtree(each)

    def extent_of(self, keys: Keys, extent: Extent) -> Extent:
        """Returns the part of the topic that tells the state of these keys: from the oldest record that still matters.

        Args:
            keys: the keys.
            extent: the topic.
        """
        if self._next is None or keys.count is None:
            return extent
        lines = keys.only(self._spark.read.parquet(str(self._place / self._next.folder)))
        oldest = lines.groupBy("partition").agg(fn.min("offset").alias("offset")).collect()
        first = {row["partition"]: row["offset"] for row in oldest}
        return extent.after(tuple(first.get(each, end) for each, end in enumerate(self._next.ends)))

    @property
    def _manifest(self) -> Path:
        return self._place / "manifest.json"

    def _usable(self, extent: Extent, snapshot: VisibleTransactions) -> _Manifest | None:
        """Returns the last run's manifest if topic and source are the same and neither went back since."""
        try:
            found = _Manifest.model_validate_json(self._manifest.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValidationError):
            return None
        # An xmin or an end that went back means that source or topic was restored to an earlier state.
        is_same = (found.form, found.source, found.topic_id) == (_FORM, self._source, extent.topic_id)
        if not is_same or len(found.ends) != len(extent.ends) or found.xmin > snapshot.xmin:
            return None
        goes_on = all(map(lambda start, kept, end: start <= kept <= end, extent.starts, found.ends, extent.ends))
        return found if goes_on and (self._place / found.folder).is_dir() else None
