"""Finds out whether the broker that said where a partition ends still leads the partition.

Theory of operation. A broker that is cut off from the others goes on as a leader, and one that was suspended does so
for a moment when it wakes up. It confirms no record, but it still says where its partitions end, and its answer lacks
what a new leader has confirmed since. The client library asks whom it last heard to be the leader, for minutes.

Each answer carries the epoch of the leader that gave it, and each change of leader begins a new epoch (KIP-320). So an
answer is good if its epoch is not older than the one in which the newest record was confirmed. We learn that one from
the replicas: every replica that helps to confirm a record follows the record's leader, and so knows the epoch. With
``acks=all``, at least ``min.insync.replicas`` of them do. If more than half of the replicas say, after we began to ask,
what the newest epoch is, one of those is among them (we take it that ``min.insync.replicas`` is at least half of the
replicas, as 2 of 3). A replica that the others hold for dead need not be asked: it can lead again only after they have
heard of it.

The client library asks no broker of our choice, so this module does, with ``wire``. It also notes which brokers the
others hold for dead although they answer us. A client that has heard of leaders only from such a broker asks it again
and again, so clients that wait for Kafka give up, and new ones begin at the others.
"""

from __future__ import annotations

import logging
import selectors
import struct
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from cdc.base.errors import CdcError, TopicUnavailable
from cdc.kafka.wire import AnswerReader, BrokerWire, text

Address: TypeAlias = tuple[str, int]
"""The host and the port that a broker advertises."""

_METADATA: Final = 3
_VERSION: Final = 7
"""The first version that has leader epochs: Kafka 2.1, https://kafka.apache.org/protocol#The_Messages_Metadata"""

_ANSWER_WITHIN_S: Final = 2.0
_LAGGARD_WITHIN_S: Final = 0.05
"""How much later than a sufficient number of others a broker may answer without losing its connection."""
_CONNECT_WITHIN_S: Final = 1.0
_AGAIN_AFTER_S: Final = 10.0
"""How long a broker that did not answer is left alone, so that it does not hold up every question."""
_NEVER_ANSWERED_AGAIN_S: Final = 60.0
"""The same while no broker has ever answered: our TLS or SASL is probably not what they want. Longer, because each
attempt costs time; not for ever, because all of them may only have been slow, and until then nothing is checked."""

_CUT_OFF_AFTER_S: Final = 2.0
"""A broker that starts answers a moment before the others have heard of it."""
_CUT_OFF_FOR_S: Final = 15.0
"""How long it counts as cut off after it was last seen to be. ``BrokerPulse`` makes each process look every second."""

_LOG: Final = logging.getLogger(__name__)


class Led(NamedTuple):
    """What a broker knows of a partition's leader.

    Attributes:
        epoch: the number of the newest leader; greater than that of each former one.
        replicas: ids of the brokers that keep the partition.
    """

    epoch: int
    replicas: frozenset[int]


class View(NamedTuple):
    """What one broker knows of the cluster.

    Attributes:
        brokers: those that it holds to be alive, by id.
        led: the partitions that it was asked for, and knows.
    """

    brokers: Mapping[int, Address]
    led: Mapping[tuple[str, int], Led]


def newest_epoch(place: tuple[str, int], views: Mapping[int, View]) -> int | None:
    """Returns the newest leader epoch of a partition; None if too few of its replicas have answered.

    Args:
        place: topic and number.
        views: what the brokers that answered know, by their ids.
    """
    known = {number: view.led[place] for number, view in views.items() if place in view.led}
    if not known:
        return None
    newest = max(known.values(), key=lambda each: each.epoch)
    answered = known.keys() & newest.replicas
    alive = {number for view in views.values() for number in view.brokers}
    is_enough = 2 * len(answered) > len(newest.replicas) or newest.replicas & alive <= answered
    return newest.epoch if is_enough else None


class CutOffBrokers:
    """Notes the brokers that most others hold for dead, and that answer us. Any thread may use it.

    Args:
        clock: returns seconds that never go back.

    Attributes:
        found: how many times brokers were found to be cut off.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._guard = threading.Lock()
        self._since: dict[int, float] = {}
        self._cut_off: frozenset[int] = frozenset()
        self._others = ""
        self._until = 0.0
        self.found = 0

    def look(self, views: Mapping[int, View]) -> None:
        """Take note of what the brokers that answered know, by their ids."""
        now = self._clock()
        dead = {one for one in views if 2 * sum(one not in each.brokers for each in views.values()) > len(views)}
        with self._guard:
            self._since = {number: self._since.get(number, now) for number in dead}
            cut_off = frozenset(number for number, since in self._since.items() if now >= since + _CUT_OFF_AFTER_S)
            if not cut_off:
                return
            if now > self._until or not cut_off <= self._cut_off:
                self.found += 1
                _LOG.warning(
                    "broker %s answers, and the other brokers hold it for dead: it is cut off from them, and clients "
                    "begin again with the others",
                    ", ".join(map(str, sorted(cut_off))),
                )
            others = {address for each in views.values() for one, address in each.brokers.items() if one not in cut_off}
            self._others = ",".join(f"{host}:{port}" for host, port in sorted(others))
            self._cut_off, self._until = cut_off, now + _CUT_OFF_FOR_S

    def bootstrap(self) -> Mapping[str, Any]:
        """Returns the setting with which a client begins at none of these; nothing while there are none."""
        with self._guard:
            is_known = self._clock() <= self._until and self._others
            return {"bootstrap.servers": self._others} if is_known else {}

    def refuse(self, known: int) -> None:
        """End whoever waits for brokers through a client that was opened when ``found`` was ``known``.

        Raises:
            TopicUnavailable: brokers were found to be cut off since then.
        """
        if self.found != known:
            raise TopicUnavailable(
                "a broker is cut off from the others, and may be the one that this waits for",
                remedy="try again, as bridge, sink and views do by themselves: a new connection goes to the others; "
                "look at the network between the brokers",
            )


_BY_CLUSTER: Final[dict[str, CutOffBrokers]] = {}


def cut_off_brokers(options: Mapping[str, Any]) -> CutOffBrokers:
    """Returns what this process knows about the cluster that these librdkafka settings lead to."""
    return _BY_CLUSTER.setdefault(str(options.get("bootstrap.servers")), CutOffBrokers())


class LeaderEpochs:
    """Asks brokers for leader epochs, through a connection of its own to each. Several threads may share it.

    Args:
        brokers: addresses of the brokers, by id. What they answer is believed afterwards.
        options: librdkafka settings; only those for TLS and SASL are used.
    """

    def __init__(self, brokers: Mapping[int, Address], options: Mapping[str, Any]) -> None:
        self._brokers = dict(brokers)
        self._options = options
        self._cut_off = cut_off_brokers(options)
        self._wires: dict[int, BrokerWire] = {}
        self._not_before: dict[int, float] = {}
        self._has_answered = self._is_warned = False
        self._problem = ""
        self._lock = threading.Lock()

    def __del__(self) -> None:
        """Close the connections with the admin client that owns this, as the client library closes its own."""
        for wire in self._wires.values():
            wire.close()

    def newest(self, places: Collection[tuple[str, int]]) -> dict[tuple[str, int], int | None] | None:
        """Ask all brokers for the newest leader epoch of each partition.

        Returns:
            By partition; None instead of a number if too few of its replicas have answered. None instead of all if no
            broker has ever answered: then only the client library can talk to them.
        """
        with self._lock:
            views = self._ask(places)
            if not self._has_answered:
                self._warn()
                return None
            self._cut_off.look(views)
            newest_view = max(views.values(), key=lambda view: len(view.brokers), default=None)
            if newest_view is not None:
                self._brokers = {**newest_view.brokers}
            return {place: newest_epoch(place, views) for place in places}

    def _ask(self, places: Collection[tuple[str, int]]) -> dict[int, View]:
        topics = sorted({topic for topic, _ in places})
        body = struct.pack(">i", len(topics)) + b"".join(map(text, topics)) + b"\0"  # do not create topics
        views: dict[int, View] = {}
        used = self._send(self._wires.keys() & self._brokers.keys(), body)
        self._receive(used, places, views)
        # A broker may have closed a connection that was not used for minutes, so a new one is tried at once
        fresh = self._send(self._brokers.keys() - views.keys() - self._wires.keys(), body)
        self._receive(fresh, places, views)
        return views

    def _send(self, numbers: Iterable[int], body: bytes) -> set[int]:
        """Send the question to these brokers; returns those to which it went."""
        sent = set()
        for number in sorted(numbers):
            wire = self._wires.get(number) or self._connect(number)
            if wire is None:
                continue
            try:
                wire.send(_METADATA, _VERSION, body)
            except CdcError:
                self._drop(number)
            else:
                sent.add(number)
        return sent

    def _connect(self, number: int) -> BrokerWire | None:
        if time.monotonic() < self._not_before.get(number, 0):
            return None
        host, port = self._brokers[number]
        try:
            self._wires[number] = BrokerWire(host, port, self._options, timeout_s=_CONNECT_WITHIN_S)
        except CdcError as error:
            self._problem = f": {error.message}"
            self._leave_alone(number)
            return None
        return self._wires[number]

    def _receive(self, numbers: set[int], places: Collection[tuple[str, int]], views: dict[int, View]) -> None:
        """Take the answers of these brokers; the last ones get little time once the others suffice."""
        waiting = set(numbers)
        deadline = time.monotonic() + _ANSWER_WITHIN_S
        with selectors.DefaultSelector() as selector:
            for number in waiting:
                selector.register(self._wires[number], selectors.EVENT_READ, number)
            while waiting and (left_s := deadline - time.monotonic()) > 0:
                for key, _ in selector.select(left_s):
                    selector.unregister(key.fileobj)
                    waiting.discard(key.data)
                    try:
                        views[key.data] = parse_view(self._wires[key.data].answer())
                    except CdcError:
                        self._drop(key.data)
                    else:
                        self._has_answered = True
                        self._not_before.pop(key.data, None)
                if all(newest_epoch(place, views) is not None for place in places):
                    deadline = min(deadline, time.monotonic() + _LAGGARD_WITHIN_S)
        for number in waiting:
            self._drop(number)
            self._leave_alone(number)

    def _drop(self, number: int) -> None:
        """Close a connection that broke, or on which an answer is still to come that nobody waits for."""
        self._wires.pop(number).close()

    def _leave_alone(self, number: int) -> None:
        pause_s = _AGAIN_AFTER_S if self._has_answered else _NEVER_ANSWERED_AGAIN_S
        self._not_before[number] = time.monotonic() + pause_s

    def _warn(self) -> None:
        if not self._is_warned:
            self._is_warned = True
            _LOG.warning(
                "cannot ask each broker which one leads a partition%s. A broker that is cut off from the others may "
                "give old answers. Asking needs SASL with PLAIN or SCRAM, and certificates in PEM files; it is tried "
                "again every minute",
                self._problem,
            )


def parse_view(answer: bytes) -> View:
    """Parse an answer to Metadata 7.

    Raises:
        DecodeError: it is not such an answer.
    """
    fields = AnswerReader(answer)
    _, count = fields.take(">ii")
    brokers: dict[int, Address] = {}
    for _ in range(count):
        (number,) = fields.take(">i")
        host = fields.text()
        (brokers[number], _rack) = (host, fields.take(">i")[0]), fields.text()
    fields.text()
    _, topics = fields.take(">ii")
    led: dict[tuple[str, int], Led] = {}
    for _ in range(topics):
        fields.take(">h")
        topic = fields.text()
        _, partitions = fields.take(">?i")
        for _ in range(partitions):
            _, number, _, epoch = fields.take(">hiii")
            led[topic, number] = Led(epoch, frozenset(_numbers(fields)))
            _in_sync, _offline = _numbers(fields), _numbers(fields)
    return View(brokers, led)


def _numbers(fields: AnswerReader) -> tuple[int, ...]:
    (count,) = fields.take(">i")
    return fields.take(f">{max(count, 0)}i")
