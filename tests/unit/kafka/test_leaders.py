"""Which leader epoch counts, given what some of the brokers know."""

from __future__ import annotations

import struct
from collections.abc import Mapping

import pytest

from cdc.base.errors import DecodeError, TopicUnavailable
from cdc.kafka.leaders import CutOffBrokers, Led, View, newest_epoch, parse_view
from cdc.kafka.wire import text

PLACE = ("orders", 0)
ALL_THREE = (1, 2, 3)


def says(epoch: int, *, alive: tuple[int, ...] = ALL_THREE, replicas: tuple[int, ...] = ALL_THREE) -> View:
    return View(dict.fromkeys(alive, ("host", 9092)), {PLACE: Led(epoch, frozenset(replicas))})


@pytest.mark.parametrize(
    ("views", "newest"),
    [
        pytest.param({}, None, id="nobody answers"),
        pytest.param({1: View({1: ("host", 9092)}, {})}, None, id="nobody knows the topic"),
        pytest.param({1: says(4), 2: says(4), 3: says(4)}, 4, id="all agree"),
        pytest.param({1: says(4), 2: says(5), 3: says(5)}, 5, id="the first is cut off"),
        pytest.param({1: says(4), 2: says(5)}, 5, id="one that is cut off, and one that is not"),
        pytest.param({1: says(4)}, None, id="one alone may be cut off"),
        pytest.param({2: says(5, alive=(2, 3))}, None, id="another one that lives does not answer"),
        pytest.param({2: says(5, alive=(2,))}, 5, id="the others are dead, and have been told so"),
        pytest.param({1: says(4), 2: says(5, alive=(2, 3))}, 5, id="two of three"),
        pytest.param({1: says(4, replicas=(1,))}, 4, id="the only replica"),
        pytest.param({1: says(4, replicas=(1, 2))}, None, id="one of two that live"),
        pytest.param({1: says(4, replicas=(1, 2), alive=(1, 3))}, 4, id="one of two, of which the other is dead"),
        pytest.param({1: says(4), 4: says(4), 5: says(4)}, None, id="brokers that do not keep the partition"),
        pytest.param({1: says(4, replicas=(1, 2)), 4: says(6, replicas=(3, 4))}, None, id="it moved to others"),
        pytest.param({3: says(6, replicas=(3, 4)), 4: says(6, replicas=(3, 4))}, 6, id="all of those that it moved to"),
    ],
)
def test_the_newest_epoch_needs_enough_replicas(views: Mapping[int, View], newest: int | None) -> None:
    assert newest_epoch(PLACE, views) == newest


CUT_OFF = {1: says(4), 2: says(5, alive=(2, 3)), 3: says(5, alive=(2, 3))}
WHOLE = {1: says(5), 2: says(5), 3: says(5)}


def named(alive: tuple[int, ...]) -> dict[int, tuple[str, int]]:
    return {number: (f"host{number}", 9092) for number in alive}


class TestCutOff:
    def setup_method(self) -> None:
        self.now = 100.0
        self.brokers = CutOffBrokers(lambda: self.now)

    def look(self, views: Mapping[int, View], now: float) -> bool:
        """Whether clients begin elsewhere."""
        self.now = now
        self.brokers.look({number: view._replace(brokers=named(tuple(view.brokers))) for number, view in views.items()})
        return bool(self.brokers.bootstrap())

    def test_clients_begin_at_the_others_after_two_seconds(self) -> None:
        assert not self.look(CUT_OFF, 100)
        assert not self.look(CUT_OFF, 101.9)
        self.brokers.refuse(0)
        assert self.look(CUT_OFF, 102)
        assert self.brokers.bootstrap() == {"bootstrap.servers": "host2:9092,host3:9092"}
        with pytest.raises(TopicUnavailable, match="cut off"):
            self.brokers.refuse(0)

    def test_a_client_that_began_elsewhere_goes_on(self) -> None:
        for now in (100, 102, 104, 118):
            self.look(CUT_OFF, now)
        assert self.brokers.found == 1
        self.brokers.refuse(1)

    def test_it_is_forgotten_after_a_while(self) -> None:
        for now in (100, 102):
            self.look(CUT_OFF, now)
        assert self.look(WHOLE, 117), "no news of it for a while is not yet good news"
        assert not self.look(WHOLE, 117.1)
        assert not self.look(CUT_OFF, 118), "from here on, it counts anew"
        assert self.look(CUT_OFF, 120)
        assert self.brokers.found == 2

    def test_a_second_broker_is_news(self) -> None:
        for now in (100, 102):
            self.look(CUT_OFF, now)
        both = {1: says(4), 2: says(4), **{number: says(5, alive=(3, 4, 5)) for number in (3, 4, 5)}}
        for now in (103, 105):
            self.look(both, now)
        assert self.brokers.found == 2
        assert self.brokers.bootstrap() == {"bootstrap.servers": "host3:9092,host4:9092,host5:9092"}

    @pytest.mark.parametrize(
        "views",
        [
            pytest.param(WHOLE, id="nobody is cut off"),
            pytest.param({2: says(5, alive=(2, 3)), 3: says(5, alive=(2, 3))}, id="the dead one does not answer"),
            pytest.param({1: says(4), 2: says(5, alive=(2, 3))}, id="one against one"),
            pytest.param({}, id="nobody answers"),
        ],
    )
    def test_nobody_is_cut_off(self, views: Mapping[int, View]) -> None:
        assert not any(self.look(views, now) for now in (100, 105, 110))


def answer() -> bytes:
    """Two brokers, a topic with two partitions, and one that does not exist."""
    brokers = b"".join(
        struct.pack(">i", number) + text("127.0.0.1") + struct.pack(">i", 9090 + number) + rack
        for number, rack in ((1, struct.pack(">h", -1)), (2, text("b")))
    )
    partitions = b"".join(
        struct.pack(">hiii", 0, number, leader, epoch)
        + struct.pack(">iii", 2, 1, 2)
        + struct.pack(">iiii", 1, leader, 1, 3)
        for number, leader, epoch in ((0, 1, 7), (1, 2, 9))
    )
    topics = struct.pack(">h", 0) + text("orders") + struct.pack(">?i", False, 2) + partitions
    topics += struct.pack(">h", 3) + text("gone") + struct.pack(">?i", False, 0)
    return struct.pack(">ii", 0, 2) + brokers + text("cluster") + struct.pack(">ii", 1, 2) + topics


def test_an_answer_is_parsed() -> None:
    assert parse_view(answer()) == View(
        {1: ("127.0.0.1", 9091), 2: ("127.0.0.1", 9092)},
        {("orders", 0): Led(7, frozenset({1, 2})), ("orders", 1): Led(9, frozenset({1, 2}))},
    )


def test_a_truncated_answer_is_an_error() -> None:
    whole = answer()
    for length in range(len(whole)):
        with pytest.raises(DecodeError):
            parse_view(whole[:length])
