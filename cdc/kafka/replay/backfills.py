"""What ``{name}.__progress`` holds for people: how far the stream is, how far each backfill is, and what was asked."""

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
"""Value and offset of each key's newest record, in the order in which they were written."""

log = structlog.get_logger("cdc.backfill")


@dataclass(frozen=True, slots=True)
class StoredBackfill:
    """A backfill's newest record, and where it lies in the progress topic."""

    progress: BackfillProgress
    offset: int


@dataclass(frozen=True, slots=True)
class StoredTopic:
    """A topic as the bridge saw it last, and where it said so in the progress topic."""

    known: KnownTopic
    offset: int


@dataclass(frozen=True, slots=True)
class Published:
    """The progress topic, read once.

    Attributes:
        stream: None when nothing is published yet.
        backfills: by ``namespace.table``, in the order in which they were written last.
        requests: what people asked and no bridge has taken yet, in order.
        repairs: parts of repairs that were asked for and are not done, in order.
        outcomes: of each table's last repair.
        topics: by name.
    """

    stream: Progress | None
    backfills: Mapping[str, StoredBackfill]
    requests: tuple[BackfillRequest, ...] = ()
    repairs: tuple[RepairRequest, ...] = ()
    outcomes: tuple[RepairOutcome, ...] = ()
    topics: Mapping[str, StoredTopic] = field(default_factory=dict)


def read_published(admin: BrokerAdmin, topic: str, stream_key: bytes) -> Published:
    """Everything of the progress topic that is committed now.

    Args:
        admin: asks, and has the settings of whoever reads.
        topic: the progress topic.
        stream_key: as ``contract.progress.stream_key`` makes it.

    Raises:
        TopicRefused: there is no such topic, or we may not read it.
        TopicUnavailable: no broker answers.
        DecodeError: a record is not of this contract.
    """
    newest: Newest = {}
    for record in read_topic(admin, topic):
        keep(newest, record)
    return published(newest, stream_key)


def keep(newest: Newest, record: StoredRecord) -> None:
    """Take one more record of the progress topic, in its order."""
    if record.key is None:
        return
    newest.pop(record.key, None)
    if record.value is not None:
        newest[record.key] = record.value, record.offset


def published(newest: Newest, stream_key: bytes) -> Published:
    """What the newest records say.

    Args:
        newest: as ``keep`` gathered them.
        stream_key: as ``contract.progress.stream_key`` makes it.

    Raises:
        DecodeError: a record is not of this contract.
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
    """A request, or None for one that is not of this version: nobody's request is a reason to stop the stream."""
    try:
        return parse(value)
    except DecodeError as error:
        log.warning("a request is left alone", reason=error.message, remedy=error.remedy)
        return None
