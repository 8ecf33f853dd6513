"""The manifest beside a snapshot's files: which commit the snapshot shows, and how to check that it is complete."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from cdc.contract.jobspec.deployment import STRICT
from cdc.contract.jobspec.snapshot import AsOf


class TableManifest(BaseModel):
    """One table's files.

    Attributes:
        topic: the topic that was read: the state topic, or the history topic for a past that only the history tells.
        topic_id: Kafka's id of that topic. A recreated topic gets a new one, and offsets are valid for one topic only.
        folder: the folder of the Parquet files, beside the manifest.
        first_offsets, end_offsets: the range of offsets that was read, by partition.
        newest_commit: the commit time of the state's newest record, ISO 8601 in UTC; None for an empty table.
        records, rows, tombstones: how many records lie below the bound, how many rows were written, and how many keys
            have a tombstone as their state.
        hash: two 64-bit sums, in hexadecimal, over the halves of each row's MD5(key, a zero byte, value). The order of
            rows does not matter.
        definition: fingerprint of the definition that types the columns; empty if the source's present one does.
        definitions: all fingerprints in the schemas topic for this table.
    """

    model_config = STRICT

    table: str
    topic: str
    topic_id: str
    folder: str
    key: tuple[str, ...]
    first_offsets: tuple[int, ...]
    end_offsets: tuple[int, ...]
    newest_commit: str | None
    records: int
    rows: int
    tombstones: int
    hash: str
    definition: str
    definitions: tuple[str, ...]


class Manifest(BaseModel):
    """The manifest of one snapshot.

    Attributes:
        name: the name of the snapshot's folder.
        as_of: the point that the job was asked for.
        lsn: the snapshot holds what committed before this position; None for one by offsets, which matches no commit.
        slot: the replication slot whose stream filled the topics.
    """

    model_config = STRICT

    version: Literal[1] = 1
    name: str
    as_of: AsOf
    lsn: str | None
    slot: str
    tables: tuple[TableManifest, ...]
    spark_version: str
    connector_version: str
