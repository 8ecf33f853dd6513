"""What stands beside a snapshot's files: of which commit it is, and how to see that nothing is missing."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from cdc.contract.jobspec.deployment import STRICT
from cdc.contract.jobspec.snapshot import AsOf


class TableManifest(BaseModel):
    """One table's files.

    Attributes:
        topic: that was read, the state's or, for a past that this cannot tell, the history's.
        topic_id: Kafka's own, new with every topic of the same name: offsets are good for one topic only.
        folder: beside the manifest, with the Parquet files.
        first_offsets, end_offsets: of the records that were read, by partition.
        newest_commit: of the newest record of the state, ISO 8601 in UTC; None for an empty table.
        records: read, of the state; rows: written; tombstones: keys that are gone and not forgotten yet.
        hash: of the rows: two 64-bit sums over halves of MD5(key, a zero byte, value), in hexadecimal, in any order.
        definition: fingerprint of the definition by which the columns are typed; empty for the source's present one.
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
    """A snapshot.

    Attributes:
        name: of its folder.
        as_of: what was asked, as the job had it.
        lsn: it holds what committed before this position; None for a snapshot by offsets, which is no commit's state.
        slot: the replication slot whose stream made the topics.
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
