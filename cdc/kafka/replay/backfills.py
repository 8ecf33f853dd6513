"""Reads ``{name}.__progress`` for people: how far the stream and each backfill are, and what was requested."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

import structlog

from cdc.base.errors import DecodeError
from cdc.contract.backfill import is_backfill_key, is_request_key, parse_backfill, parse_request
from cdc.contract.known_topic import KnownTopic, named_topic, parse_known_topic
from cdc.contract.ports import StoredRecord
from cdc.contract.progress import parse_progress
from cdc.contract.record import BackfillProgress, BackfillRequest, Progress, RepairOutcome, RepairRequest
from cdc.contract.repair import is_repair_key, is_repair_request_key, parse_repair_outcome, parse_repair_request
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.replay.bounded import read_topic

Request = TypeVar("Request")

Newest: TypeAlias = dict[bytes, tuple[bytes, int]]
"""Value and offset of the newest record of each key, in the order in which these records were written."""

log = structlog.get_logger("cdc.backfill")


@dataclass(frozen=True, slots=True)
class StoredBackfill:
    """A backfill's newest record, and its offset in the progress topic."""

    progress: BackfillProgress
    offset: int


@dataclass(frozen=True, slots=True)
class StoredTopic:
    """A topic as the bridge last saw it, and the offset of the record in the progress topic that says so."""

    known: KnownTopic
    offset: int


@dataclass(frozen=True, slots=True)
class Published:
    """The contents of the progress topic at one moment.

    Attributes:
        stream: the stream's progress; None when nothing is published yet.
        backfills: by ``namespace.table``, in the order of their newest records.
        requests: backfill requests that no bridge has taken yet, in order.
        repairs: parts of repairs that were requested and are not done, in order.
        outcomes: the outcome of each table's last repair.
        topics: what the bridge last saw of each topic, by name.
    """

    stream: Progress | None
    backfills: Mapping[str, StoredBackfill]
    requests: tuple[BackfillRequest, ...] = ()
    repairs: tuple[RepairRequest, ...] = ()
    outcomes: tuple[RepairOutcome, ...] = ()
    topics: Mapping[str, StoredTopic] = field(default_factory=dict)


def read_published(admin: BrokerAdmin, topic: str, stream_key: bytes) -> Published:
    """Read everything that is committed in the progress topic now.

    Args:
        admin: asks the brokers; the reader takes its settings.
        topic: the progress topic.
        stream_key: as ``contract.progress.stream_key`` makes it.

    Raises:
        TopicRefused: there is no such topic, or we may not read it.
        TopicUnavailable: no broker answers.
        DecodeError: a record does not follow this contract.
    """
    newest: Newest = {}
    for record in read_topic(admin, topic):
        keep(newest, record)
    return published(newest, stream_key)


def keep(newest: Newest, record: StoredRecord) -> None:
    """Add the next record of the progress topic to ``newest``."""
    if record.key is None:
        return
    newest.pop(record.key, None)  # a dictionary keeps the place of an old key: the newest record has to come last
    if record.value is not None:
        newest[record.key] = record.value, record.offset


def published(newest: Newest, stream_key: bytes) -> Published:
    """Parse the newest records of the progress topic.

    Args:
        newest: as ``keep`` gathered them.
        stream_key: as ``contract.progress.stream_key`` makes it.

    Raises:
        DecodeError: a record does not follow this contract.
    """

    def requests(is_one: Callable[[bytes], bool], parse: Callable[[bytes], Request]) -> tuple[Request, ...]:
        read = (understood(parse, value) for key, (value, _) in newest.items() if is_one(key))
        return tuple(each for each in read if each is not None)

    stream = newest.get(stream_key)
    backfills = [
        StoredBackfill(parse_backfill(value), at) for key, (value, at) in newest.items() if is_backfill_key(key)
    ]
    return Published(
        stream=None if stream is None else parse_progress(stream[0]),
        backfills={each.progress.table: each for each in backfills},
        requests=requests(is_request_key, parse_request),
        repairs=requests(is_repair_request_key, parse_repair_request),
        topics={
            named: StoredTopic(parse_known_topic(value), at)
            for key, (value, at) in newest.items()
            if (named := named_topic(key)) is not None
        },
        outcomes=tuple(parse_repair_outcome(value) for key, (value, _) in newest.items() if is_repair_key(key)),
    )


def understood(parse: Callable[[bytes], Request], value: bytes) -> Request | None:
    """Parse a request; None if it cannot be parsed, because a request from another version must not stop the stream."""
    try:
        return parse(value)
    except DecodeError as error:
        log.warning("ignoring a request that cannot be parsed", reason=error.message, remedy=error.remedy)
        return None
