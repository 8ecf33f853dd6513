"""What one producer has on its way to brokers."""

from __future__ import annotations

from tests.world.kafka_log import QueuedRecord


class Batch:
    """Records on their way to one partition.

    Attributes:
        at: the offset of the first record, once they are stored.
        refusal: why a broker refuses them.
        is_back: the connection was lost, and they wait in the client's queue again.
    """

    __slots__ = ("at", "is_back", "records", "refusal")

    def __init__(self, records: list[QueuedRecord]) -> None:
        self.records = records
        self.at: int | None = None
        self.refusal: int | None = None
        self.is_back = False

    @property
    def is_decided(self) -> bool:
        """Whether a broker has stored or refused it."""
        return self.at is not None or self.refusal is not None


class Lane:
    """What goes to one partition, in order; to a topic that is not known yet, if the number is -1."""

    __slots__ = ("place", "queue", "since", "wire")

    def __init__(self, place: tuple[str, int]) -> None:
        self.place = place
        self.queue: list[QueuedRecord] = []
        self.wire: list[Batch] = []
        self.since = 0.0


class Ending:
    """The request that ends a transaction."""

    __slots__ = ("is_answered", "is_commit", "is_decided", "refusal")

    def __init__(self, *, is_commit: bool) -> None:
        self.is_commit = is_commit
        self.is_decided = self.is_answered = False
        self.refusal: int | None = None
