"""Reads partitions of a topic: to their ends for one key, or without end for all new records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, Final

from cdc.base.errors import TopicUnavailable
from cdc.contract.formats.topic_keys import TopicKeys
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
    """Returns the key's newest record in each partition: more than one only if writers use different partitioners.

    With ``is_equal``, returns the newest record of each equal key; keys that have a row come last.

    Args:
        options: librdkafka settings, ``bootstrap.servers`` among them.
        topic: the topic's name.
        key: the record key, as it is in the topic.
        is_ours: the bridge writes the topic, so only the key's own partition is read.
        is_equal: says which other keys are equal to this one; they may lie in any partition.
        show: called several times a second with the offsets that were read, and with how many there are.

    Raises:
        TopicRefused: the topic does not exist, or we may not read it.
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
    keys: TopicKeys,
    show: Callable[[int, int], None] = lambda *_: None,
) -> bytes:
    """Returns the key's bytes in the topic, as the topic spells it.

    If the topic has several equal keys, returns the one that has a row.

    Args:
        options: librdkafka settings, ``bootstrap.servers`` among them.
        topic: the topic of a table.
        key: the key as somebody asks for it, in JSON.
        columns: name and type of the key columns; the type as ``__schemas`` spells it.
        keys: translates the topic's keys.
        show: as for ``newest_of_key``.

    Raises:
        TopicRefused: the topic does not exist, or we may not read it.
        TopicUnavailable: no broker answers, or a Kafka transaction hides the end for minutes.
    """
    is_equal, raw = equal_keys(key, columns), keys.wire(key)
    if is_equal is None:
        return raw
    found = newest_of_key(options, topic, raw, is_ours=True, is_equal=keys.reading(is_equal), show=show)
    return (found[-1].key or raw) if found else raw


def follow(
    options: Mapping[str, Any],
    topic: str,
    *,
    from_beginning: bool,
    begun: Callable[[], None],
    trouble: Callable[[TopicUnavailable], None],
) -> Iterator[StoredRecord]:
    """Yields every committed record of a topic, from now on or from its beginning, without end.

    Args:
        options: librdkafka settings, ``bootstrap.servers`` among them.
        topic: the topic's name.
        from_beginning: start with the records that the topic holds already.
        begun: called when everything committed from then on will be seen.
        trouble: called when no broker answers; reading goes on where it was as soon as one does.

    Raises:
        TopicRefused: the topic does not exist any more, or we may not read it.
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
