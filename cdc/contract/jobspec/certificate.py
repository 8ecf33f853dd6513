"""Certificates: what a comparison proved, with digests of each topic's state, and the file that chains them.

The file has one certificate a line, as JSON. Each names the SHA-256 of the line before (without the line break), so no
line can be changed, removed or put between two others without a later line telling.

A table's rows are the newest records of its keys, each in the partition where the key belongs, of those records that
the certificate's snapshot sees, up to its offsets. A row's hash is the first 128 bits of the SHA-256 of this text: the
number of the key's bytes in decimal, a colon, the key, the number of the value's bytes, a colon, the value, and the
header's field ``json_null`` if there is one. No two rows have the same text. A digest is the sum of hashes modulo
2^128: the order of the rows does not matter, and a row that is there twice does not vanish. A key belongs to the bucket
that the first 60 bits of its MD5 name, modulo ``BUCKETS``.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final, Literal, NamedTuple

from pydantic import BaseModel, Field, ValidationError

from cdc.contract.jobspec.deployment import STRICT, KafkaSettings, SparkSettings

BUCKETS: Final = 64
"""How many digests a table has at most: enough to find where two states differ, few enough for a line of text."""

DIGEST_BITS: Final = 128


class Bucket(NamedTuple):
    """The rows of one bucket, and their digest in 32 hex digits. Buckets without rows are left out."""

    number: int
    rows: int
    digest: str


class CertifiedDefinition(NamedTuple):
    """A definition by its fingerprint, with a hash of the rules that hide its columns and rows; "" without rules."""

    fingerprint: str
    rules: str


class CertifiedRound(NamedTuple):
    """A snapshot of the source, and how many keys were compared there by whole rows."""

    snapshot: str
    lsn: str
    keys: int


class CertifiedFold(BaseModel):
    """The state of a topic at a snapshot of the source.

    Attributes:
        topic_id: Kafka's id of the topic. A recreated topic gets a new one.
        offsets: by partition, the first offset that was read, and the one after the last.
        snapshot: the snapshot of the source; records of transactions that it does not see are left out.
        lsn: the position of that snapshot.
        definitions: all definitions that the schemas topic had for this topic, sorted.
        buckets: the digests.
    """

    model_config = STRICT

    topic_id: str
    offsets: tuple[tuple[int, int], ...]
    snapshot: str
    lsn: str
    definitions: tuple[CertifiedDefinition, ...]
    buckets: tuple[Bucket, ...]

    @property
    def rows(self) -> int:
        """The rows of all buckets."""
        return sum(each.rows for each in self.buckets)


class CertifiedTable(BaseModel):
    """What was found out about a table.

    Attributes:
        verdict: the report's verdict, which includes a replica.
        rows: how many rows the topic holds at the snapshot.
        source_rows: how many rows the source has.
        differences: how many keys differ between source and topic.
        replica_differences: how many differ between topic and replica, or lake; None if none was compared.
        rounds: the snapshots at which keys were compared; the first is the one of the digests.
    """

    model_config = STRICT

    table: str
    topic: str
    verdict: Literal["identical", "different"]
    rows: int
    source_rows: int
    differences: int
    replica_differences: int | None
    rounds: tuple[CertifiedRound, ...]
    fold: CertifiedFold


class RunCertificate(BaseModel):
    """What one run proved.

    Attributes:
        previous: the SHA-256 of the line before, in hex; "" for the first.
        run: the run's id, as in its report.
        began, ended: when the run began and ended, ISO 8601 in UTC.
        name, slot: the bridge.
        system_identifier, timeline, database: the source.
        verdict: the worst verdict of its tables.
    """

    model_config = STRICT

    version: Literal[1] = 1
    previous: str
    run: str
    tool_version: str
    began: str
    ended: str
    name: str
    slot: str
    system_identifier: str
    timeline: int
    database: str
    verdict: Literal["identical", "different"]
    tables: tuple[CertifiedTable, ...]


class VerifyJob(BaseModel):
    """Compute the digests of a certificate anew from its topics, as far as these still hold the records.

    Attributes:
        samples: how many keys to name that cannot be checked.
        redact: name none.
    """

    model_config = STRICT

    spark: SparkSettings
    kafka: KafkaSettings
    certificate: RunCertificate
    samples: int = Field(default=10, ge=0, le=1000)
    redact: bool = False


class Chain(NamedTuple):
    """What a file of certificates holds.

    Attributes:
        lines: how many certificates follow each other from the first line on.
        chosen: the line that was asked for; None if it is not among them.
        last_hash: the SHA-256 of the last of them; "" if there is none.
        fault: what is wrong with the line after these; "" if the whole file is right.
    """

    lines: int
    chosen: RunCertificate | None
    last_hash: str
    fault: str


def read_chain(path: Path, line: int | None = None) -> Chain:
    """Reads a file of certificates up to the first line that does not belong there.

    Args:
        path: the file.
        line: the certificate to return, counted from 1; None for the last.

    Raises:
        OSError: the file cannot be read.
    """
    count, chosen, last_hash = 0, None, ""
    with path.open("rb") as file:
        for text in file:
            number = count + 1
            try:
                found = RunCertificate.model_validate_json(text)
            except ValidationError:
                return Chain(count, chosen, last_hash, f"line {number} is not a whole certificate of version 1")
            if not text.endswith(b"\n"):
                return Chain(count, chosen, last_hash, f"line {number} is cut: it has no end")
            if found.previous != last_hash:
                told = f"does not follow line {count}: one of the two was changed, or lines between them are missing"
                if not count:
                    told = "names a line before it: the file has lost its beginning"
                return Chain(count, chosen, last_hash, f"line {number} {told}")
            count, last_hash = number, line_hash(text)
            chosen = found if line in (None, number) else chosen
    return Chain(count, chosen, last_hash, "" if count else "it holds no certificate")


def line_hash(line: bytes) -> str:
    """Returns the SHA-256 of a line without its line break, in hex."""
    return hashlib.sha256(line.rstrip(b"\n")).hexdigest()


def as_digest(total: int) -> str:
    """Returns the digest of rows from the sum of their hashes, in 32 hex digits."""
    return f"{total % 2**DIGEST_BITS:0{DIGEST_BITS // 4}x}"
