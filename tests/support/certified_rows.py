"""The digests of certificates in plain Python, as their definition says it: what Spark has to agree with."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from cdc.contract.jobspec.certificate import BUCKETS, DIGEST_BITS, Bucket, as_digest


class CertifiedRow(NamedTuple):
    """A record that is a key's state, and the field of its header that says which nulls are documents."""

    key: bytes
    value: bytes
    json_null: str = ""


def row_text(row: CertifiedRow) -> bytes:
    """What is hashed of a row."""
    return b"%d:%b%d:%b%b" % (len(row.key), row.key, len(row.value), row.value, row.json_null.encode())


def bucket_of(key: bytes) -> int:
    """The bucket of a key."""
    return int(hashlib.md5(key, usedforsecurity=False).hexdigest()[:15], 16) % BUCKETS


def digest_of(rows: Iterable[CertifiedRow]) -> str:
    """The digest of some rows."""
    size = DIGEST_BITS // 8
    return as_digest(sum(int.from_bytes(hashlib.sha256(row_text(each)).digest()[:size], "big") for each in rows))


def buckets_of(rows: Iterable[CertifiedRow]) -> tuple[Bucket, ...]:
    """The digests of a topic's rows."""
    by_bucket: dict[int, list[CertifiedRow]] = {}
    for row in rows:
        by_bucket.setdefault(bucket_of(row.key), []).append(row)
    return tuple(Bucket(number, len(each), digest_of(each)) for number, each in sorted(by_bucket.items()))


def rows_of(newest: Mapping[bytes, bytes | None]) -> list[CertifiedRow]:
    """The rows among the newest values of keys; tombstones are none."""
    return [CertifiedRow(key, value) for key, value in newest.items() if value is not None]
