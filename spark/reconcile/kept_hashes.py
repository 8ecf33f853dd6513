"""What the last run learned of a topic, kept as Parquet: the next run reads only what was written since.

Kept are, by key and partition, the hash of the newest record that counted at the last snapshot, and every record that
did not count yet. Nothing else can matter to a later snapshot, for it sees all that the earlier one saw. So this is
exact as long as it is the same topic and the same source, and neither was turned back; if that is not sure, the whole
topic is read. What happens to records behind the readers' backs (a log that lost its end and grew again) only a run
without kept hashes notices.
"""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ValidationError
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn

from cdc.contract.jobspec.deployment import STRICT, KafkaSettings
from cdc.spark.offsets import Extent
from cdc.spark.reconcile.keys import Keys
from cdc.spark.reconcile.topic_records import TOMBSTONE, RecordMoment, hashed
from cdc.spark.source.visibility import VisibleTransactions
from cdc.spark.stored import store
from cdc.spark.topic import read_topic

_FORM: Final = 3


class _Manifest(BaseModel):
    """Which hashes are kept, and of what.

    Attributes:
        form: of the Parquet files.
        source: the server whose snapshot it was, and its timeline: another counts transactions differently.
        xmin: of that snapshot.
        topic_id: Kafka's own id.
        ends: by partition: everything before was read.
        folder: with the hashes, beside the manifest.
    """

    model_config = STRICT

    form: int
    source: str
    xmin: int
    topic_id: str
    ends: tuple[int, ...]
    folder: str


class KeptHashes:
    """The hashes of one topic.

    Args:
        place: folder of this topic; made when missing; of one run at a time.
        source: system identifier and timeline of the source.
        spark, kafka: to read with.

    Attributes:
        went_on: whether an earlier run's hashes were of use.
    """

    def __init__(self, place: Path, source: str, spark: SparkSession, kafka: KafkaSettings) -> None:
        self._place = place
        self._source = source
        self._spark = spark
        self._kafka = kafka
        self._next: _Manifest | None = None
        self.went_on = False

    def brought_up_to(
        self, extent: Extent, snapshot: VisibleTransactions, is_foreign: Column
    ) -> tuple[DataFrame, Extent]:
        """Add what the topic has new, into a folder of its own: the old hashes stay until ``keep``.

        Args:
            extent: the topic, pinned.
            snapshot: of the source.
            is_foreign: over the topic's records: see ``origin``.

        Returns:
            As ``topic_records.hashed``; and what was read of the topic.
        """
        old = self._usable(extent, snapshot)
        self.went_on = old is not None
        news = extent if old is None else extent.after(old.ends)
        lines = hashed(read_topic(self._spark, self._kafka, news), len(extent.ends), is_foreign)
        if old is not None:
            known = self._spark.read.parquet(str(self._place / old.folder))
            # To the next run a tombstone says what no record says; kept, the hashes of deleted keys would pile up.
            matters = fn.col("header").isNotNull() | (fn.col("topic_hash") != TOMBSTONE)
            lines = known.where(matters).unionByName(lines)
        counts = RecordMoment(snapshot=snapshot).counts()
        # A group of its own for each record that does not count yet; its header says when it will.
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
        """The next run begins where this one ended: said in one step, then the older hashes go."""
        if self._next is None:
            return
        unfinished = self._place / "unfinished.json"
        unfinished.write_text(self._next.model_dump_json(), encoding="utf-8")
        unfinished.replace(self._manifest)
        for each in self._place.glob("hashes-*"):
            if each.name != self._next.folder:
                shutil.rmtree(each)

    def extent_of(self, keys: Keys, extent: Extent) -> Extent:
        """As much of the topic as tells what these keys hold: from the oldest record that still matters to one.

        Args:
            keys: these.
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
        """The last run's, if it is of the same topic and source, and both have only gone on since."""
        try:
            found = _Manifest.model_validate_json(self._manifest.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValidationError):
            return None
        is_same = (found.form, found.source, found.topic_id) == (_FORM, self._source, extent.topic_id)
        if not is_same or len(found.ends) != len(extent.ends) or found.xmin > snapshot.xmin:
            return None
        goes_on = all(map(lambda start, kept, end: start <= kept <= end, extent.starts, found.ends, extent.ends))
        return found if goes_on and (self._place / found.folder).is_dir() else None
