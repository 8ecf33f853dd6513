"""A classroom on a broker of its own, whose page is kept; and the broker's own word for what lessons show."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, TopicPartition
from rich.console import Console

from cdc.lab.learn.classroom import Classroom
from cdc.lab.learn.page import WIDTH, LessonPage
from cdc.lab.stack import KafkaBroker, Postgres


class Told(NamedTuple):
    """A record in the words of the client library."""

    partition: int
    offset: int
    key: bytes
    value: bytes | None
    header: bytes


class Shown(LessonPage):
    """What a lesson showed: on a terminal of 80 columns, and cell by cell."""

    def __init__(self) -> None:
        self._file = io.StringIO()
        super().__init__(Console(file=self._file, width=WIDTH + 20))
        self.tables: dict[str, list[tuple[Any, ...]]] = {}
        self.commands: list[str] = []

    def table(self, title: str, headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        kept = [tuple(each) for each in rows]
        assert title not in self.tables
        assert all(len(row) == len(headings) for row in kept)
        self.tables[title] = kept
        super().table(title, headings, kept)

    def remember(self, text: str, *commands: str) -> None:
        self.commands += commands
        super().remember(text, *commands)

    @property
    def text(self) -> str:
        """All of it, without spaces at the ends of lines."""
        return "\n".join(line.rstrip() for line in self._file.getvalue().splitlines())

    @property
    def prose(self) -> str:
        """All of it, as if lines had no end."""
        return " ".join(self.text.split())

    def topic(self, lesson: str) -> str:
        """The name that was shown of a lesson's topic, or of a table's."""
        found = re.search(rf"learn-{lesson}-[0-9a-f]{{6}}|shop_[0-9a-f]{{6}}\.public\.{lesson}", self.text)
        assert found is not None, self.text
        return found[0]


class Truth:
    """What the broker says of a topic, without any reader of ours."""

    def __init__(self, kafka: KafkaBroker, topic: str) -> None:
        self._kafka, self.topic = kafka, topic
        self._options = {"bootstrap.servers": kafka.bootstrap, "group.id": "truth", "enable.auto.commit": False}

    def ends(self) -> dict[int, int]:
        """High watermarks by partition."""
        with closing(Consumer(self._options)) as consumer:
            count = len(consumer.list_topics(self.topic, 10).topics[self.topic].partitions)
            places = [TopicPartition(self.topic, number) for number in range(count)]
            return {each.partition: consumer.get_watermark_offsets(each, timeout=10)[1] for each in places}

    def records(self) -> list[Told]:
        """All that are committed, partition by partition."""
        found: list[Told] = []
        for number in self.ends():
            options = {**self._options, "enable.partition.eof": True, "auto.offset.reset": "earliest"}
            with closing(Consumer(options)) as consumer:
                consumer.assign([TopicPartition(self.topic, number, 0)])
                while (message := consumer.poll(30)) is not None and message.error() is None:
                    offset, key = message.offset(), message.key()
                    header = dict(message.headers() or ()).get("cdc", b"")
                    assert offset is not None
                    assert key is not None, "each record has a key"
                    assert isinstance(header, bytes)
                    found.append(Told(number, offset, key, message.value(), header))
        return found

    def files(self, partition: int = 0) -> dict[int, int]:
        """Bytes of the segments' files by first offset."""
        folder = Path(self._kafka.directory, "data", f"{self.topic}-{partition}")
        return {int(path.stem): path.stat().st_size for path in sorted(folder.glob("*.log"))}

    def passes(self, partition: int = 0) -> list[tuple[int, int]]:
        """From where to where the cleaner passed, as it logs it."""
        text = self._kafka.log_path.read_text(encoding="utf-8", errors="replace")
        found = re.findall(rf"cleaned log {self.topic}-{partition} \(dirty section = \[(\d+), (\d+)\]\)", text)
        return [(int(start), int(end)) for start, end in found]


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaBroker]:
    """A broker of their own: what lessons show is a cleaner's work, minute by minute, and files on a disk."""
    with KafkaBroker.open(heap_mb=512, quick_start=True) as broker:
        yield broker


@pytest.fixture
def shown() -> Shown:
    return Shown()


@pytest.fixture
def room(kafka: KafkaBroker, request: pytest.FixtureRequest, shown: Shown) -> Iterator[Classroom]:
    def postgres() -> Postgres:
        server: Postgres = request.getfixturevalue("postgres")
        return server

    with Classroom(kafka.bootstrap, shown, postgres) as classroom:
        yield classroom


@pytest.fixture
def truth(kafka: KafkaBroker, shown: Shown) -> Callable[[str], Truth]:
    """By lesson, the broker's word on its topic."""
    return lambda lesson: Truth(kafka, shown.topic(lesson))
