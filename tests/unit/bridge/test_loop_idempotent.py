"""The loop of ``delivery: idempotent`` against a scripted walsender: what its progress says behind rows."""

from __future__ import annotations

import struct
from types import SimpleNamespace

import pytest

from cdc.bridge import batch, loop
from cdc.bridge.batch import Batch
from cdc.bridge.coverage import RULES, Coverage
from cdc.bridge.kafka_side import KafkaSide
from cdc.bridge.loop import Bridge
from cdc.bridge.order.counts import CountsByTable
from cdc.bridge.order.engine import Engine
from cdc.bridge.order.touched import TouchedKeys
from cdc.bridge.sides import LoopSides
from cdc.contract.progress import parse_progress
from cdc.contract.record import Progress
from cdc.contract.snapshot import Snapshot
from tests.unit.bridge.test_batch import is_full_at
from tests.unit.bridge.test_kafka_side import CONFIG, Publisher
from tests.unit.bridge.test_loop import RELATION, RESUME, UNIX_EPOCH, Idle, Script, commit, frame, insert

TRANSACTIONS = 200


class Kafka(Publisher):
    """It has every row at once, and every progress."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Progress] = []

    def relieve(self) -> None:
        self.ack()

    def next_group(self) -> object:  # type: ignore[override]  # the script has its own frames
        self.ack()
        return super().next_group()

    def write(self, topic: str, key: bytes, value: bytes) -> None:
        super().write(topic, key, value)
        self.told.append(parse_progress(value))
        self.is_done = True


def transaction(number: int) -> list[bytes]:
    """The ``number``-th, with a transaction id of its own."""
    lsn = 200 + 20 * number
    return [frame(b"B" + struct.pack(">QqI", lsn, UNIX_EPOCH, 10 + number)), insert(number), commit(lsn)]


def run(monkeypatch: pytest.MonkeyPatch) -> Kafka:
    """What a bridge that has published them all had."""
    monkeypatch.setitem(RULES["idempotent"], Coverage.AHEAD, RULES["idempotent"][Coverage.AHEAD]._replace(every_s=-1.0))
    script, kafka = Script(*map(transaction, range(TRANSACTIONS))), Kafka()
    script.batches[0].insert(1, RELATION)
    script.snapshot = lambda: Snapshot(10 + TRANSACTIONS, frozenset())  # type: ignore[method-assign]  # replaced on purpose
    registry = SimpleNamespace(describe=lambda *_: None)
    watch = SimpleNamespace(look=lambda: None)
    side = KafkaSide(CONFIG, kafka, registry, watch, RESUME, None)  # type: ignore[arg-type]  # a stand-in
    engine = Engine(resume=RESUME, xid=0, counts=CountsByTable(), touched=TouchedKeys())
    bridge = Bridge(
        LoopSides(script, script, side, Idle([])),  # type: ignore[arg-type]  # a stand-in
        engine,
        RESUME,
        beginnings=[],
        is_first=True,
        on_commit=lambda _: None,
    )
    bridge.run(script.stop)
    return kafka


def test_the_progress_does_not_grow_with_each_source_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backlog of small transactions made it larger than Kafka takes a record, and the bridge stopped for good."""
    kafka = run(monkeypatch)
    assert len(kafka.told) > TRANSACTIONS // 4, "written beside the rows"
    assert max(len(each.unseen) for each in kafka.told) < 40


def test_a_progress_behind_rows_says_nothing_of_how_large_a_kafka_transaction_may_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next backfill over a slow network would begin with one that Kafka gives up for its age."""
    monkeypatch.setattr(batch, "FIRST_BYTES", 16)
    for age in ("MIN_AGE_S", "MAX_AGE_S"):
        monkeypatch.setattr(batch, age, 60.0)
    batches: list[Batch] = []

    def made() -> Batch:
        batches.append(Batch())
        return batches[-1]

    monkeypatch.setattr(loop, "Batch", made)
    run(monkeypatch)
    assert is_full_at(batches[-1], 16)
