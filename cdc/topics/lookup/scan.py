"""Reads partitions of a topic: to their ends for one key, or on and on for all that comes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, Final

from cdc.base.errors import TopicUnavailable
from cdc.contract.formats.written_key import equal_keys
from cdc.contract.partition import partition_of
from cdc.contract.ports import Partition, StoredRecord
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.replay.bounded import open_once, partitions_of, read_until
from cdc.kafka.replay.reader import TopicReader
from cdc.kafka.replay.topic_state import look_at

_RECORDS_PER_POLL: Final = 1_000
_POLL_S: Final = 0.2


def newest_of_key(
    options: Mapping[str, Any],
    topic: str,
    key: bytes,
    *,
    is_ours: bool,
    is_equal: Callable[[bytes], bool] | None = None,
    show: Callable[[int, int], None] = lambda *_: None,
) -> list[StoredRecord]:
    """The key's newest record of each partition that has one: at most one record, unless somebody mixes partitioners.

    Of keys that are equal and written differently, all newest records: a row that is there comes last.

    Args:
        options: librdkafka settings, ``bootstrap.servers`` among them.
        topic: its name.
        key: the record key.
        is_ours: the bridge writes it, so only the partition in which the key belongs is read.
        is_equal: which other keys are meant as well; they may lie in any partition.
        show: told how many offsets of how many are behind us, several times a second.

    Raises:
        TopicRefused: there is no such topic, or we may not read it.
        TopicUnavailable: no broker answers, or a Kafka transaction hides the end for minutes.
    """
    admin = BrokerAdmin(options)
    places = partitions_of(admin, topic)
    if is_ours and is_equal is None:
        places = [(topic, partition_of(key, len(places)))]
    low = look_at(admin, [topic])[topic].low
    found: dict[tuple[int, bytes], StoredRecord] = {}
    with closing(open_once(admin)) as reader:
        reader.add(dict.fromkeys(places, 0))
        ends = reader.high_watermarks(places)
        total = sum(end - low[number] for (_, number), end in ends.items())

        def tell() -> None:
            show(sum(max(at - low[number], 0) for (_, number), at in reader.positions().items()), total)

        for record in read_until(reader, ends, before_poll=tell):
            if record.key == key or (is_equal is not None and record.key is not None and is_equal(record.key)):
                found[record.partition, record.key] = record
    ordered = [found[place] for place in sorted(found)]
    return ordered if is_equal is None else sorted(ordered, key=lambda each: each.value is not None)


def key_in_topic(
    options: Mapping[str, Any],
    topic: str,
    key: bytes,
    columns: Sequence[tuple[str, str]],
    show: Callable[[int, int], None] = lambda *_: None,
) -> bytes:
    """The key as the topic has it: where an equal one is written differently, the one that has a row.

    Args:
        options: librdkafka settings, ``bootstrap.servers`` among them.
        topic: of a table.
        key: as somebody asks for it.
        columns: of the key; name, and type as ``__schemas`` spells it.
        show: as for ``newest_of_key``.

    Raises:
        TopicRefused: there is no such topic, or we may not read it.
        TopicUnavailable: no broker answers, or a Kafka transaction hides the end for minutes.
    """
    is_equal = equal_keys(key, columns)
    if is_equal is None:
        return key
    found = newest_of_key(options, topic, key, is_ours=True, is_equal=is_equal, show=show)
    return (found[-1].key or key) if found else key


def follow(
    options: Mapping[str, Any],
    topic: str,
    *,
    from_beginning: bool,
    begun: Callable[[], None],
    trouble: Callable[[TopicUnavailable], None],
) -> Iterator[StoredRecord]:
    """Every committed record of a topic, from now on or from its beginning, without end.

    Args:
        options: librdkafka settings, ``bootstrap.servers`` among them.
        topic: its name.
        from_beginning: what is there, too.
        begun: told when everything that is committed from then on will be seen.
        trouble: told when no broker answers; reading goes on where it was as soon as one does.

    Raises:
        TopicRefused: there is no such topic any more, or we may not read it.
        TopicUnavailable: no broker answers at the beginning.
    """
    admin = BrokerAdmin(options)
    places = partitions_of(admin, topic)
    with closing(TopicReader(options, admin=admin)) as reader:
        starts: Mapping[Partition, int] = dict.fromkeys(places, 0) if from_beginning else reader.high_watermarks(places)
        reader.add(starts)
        begun()
        while True:
            yield from _polled(reader, trouble)


def _polled(reader: TopicReader, trouble: Callable[[TopicUnavailable], None]) -> Sequence[StoredRecord]:
    try:
        return reader.poll(_RECORDS_PER_POLL, _POLL_S)
    except TopicUnavailable as error:
        trouble(error)
        return ()
