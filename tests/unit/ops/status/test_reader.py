"""A server that hangs holds up a look no longer than it says, and one thread only."""

from __future__ import annotations

import threading

from cdc.base.config import Config
from cdc.base.errors import TopicUnavailable
from cdc.kafka.replay.backfills import Published
from cdc.ops.status.parts import StatusReader
from tests.support.waiting import eventually
from tests.unit.ops.status.test_document import PROGRESS

NOWHERE = Config.model_validate(
    {"name": "shop", "source": {"dsn": "host=127.0.0.1 port=1"}, "kafka": {"bootstrap": "127.0.0.1:1"}}
)


def test_a_part_that_hangs_is_told_and_not_asked_again_until_it_has_answered() -> None:
    asked, answers = threading.Semaphore(0), threading.Event()

    def published(_: Config) -> Published:
        asked.release()
        assert answers.wait(60)
        return Published(PROGRESS, {})

    reader = StatusReader(published, 0.2)
    for _ in range(3):
        topics = reader.look(NOWHERE).topics
        assert isinstance(topics.error, TopicUnavailable)
        assert "no answer for" in topics.error.message
        assert topics.error.remedy
        assert not topics.reachable
        assert reader.is_reading
    assert asked.acquire(timeout=10)
    assert not asked.acquire(blocking=False), "asked once"
    answers.set()
    eventually(lambda: not reader.is_reading)
    eventually(lambda: reader.look(NOWHERE).topics.answer == PROGRESS)
    assert asked.acquire(blocking=False), "what it answered at last was old: it is asked anew"
