"""What the bridge's loop works with, as the loop sees it: the source, Kafka, and the backfill beside the stream."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from cdc.base.lsn import LSN
from cdc.bridge.capture.stream import WalStream
from cdc.bridge.coverage import Coverage, CoverageRule
from cdc.bridge.encode import TableEncoder
from cdc.bridge.order.demand import Demand
from cdc.bridge.order.needs import Definition, Empty, EventTopic, Rows
from cdc.bridge.order.outbox import OutboxEncoder
from cdc.bridge.rereader import Reading
from cdc.contract.change import Relation
from cdc.contract.record import Progress, Ready
from cdc.contract.snapshot import Snapshot


class FoundRelation(NamedTuple):
    """What a look-up of a relation found.

    Attributes:
        table: the encoder of its rows, or of an outbox's events; None when it is out of scope.
        begins_anew: its topic has to be emptied first.
        demand: the backfill that it needs, if any.
    """

    table: TableEncoder | OutboxEncoder | None
    begins_anew: bool = False
    demand: Demand | None = None


class SourcePort(Protocol):
    """What the loop asks the source for."""

    def snapshot(self) -> Snapshot:
        """Returns what the source shows now."""

    def look_up(self, need: Definition) -> FoundRelation | None:
        """Returns how a relation is encoded; None when that cannot be told yet."""

    def meet(self, relation: Relation) -> Sequence[Demand]:
        """Take note of a relation that was described. Returns what must be published again because of it."""

    def begins_anew(self, table: TableEncoder) -> Demand | None:
        """Returns the backfill of a table whose topic must be emptied first; None when it need not be."""

    def read(self, need: Rows, timeout_s: float) -> Reading | None:
        """Returns rows as they are now; None when there is no answer yet."""


class KafkaPort(Protocol):
    """What the loop does to Kafka."""

    @property
    def coverage(self) -> Coverage:
        """How the stored progress relates to what was sent."""

    @property
    def rule(self) -> CoverageRule:
        """What the bridge does in the present case."""

    @property
    def keeps_whole(self) -> bool:
        """Whether a Kafka transaction should end after a commit of the source, unless that is too far away."""

    @property
    def is_busy(self) -> bool:
        """Whether a portion of a backfill should wait, so that the next commit need not."""

    def look(self) -> None:
        """Check the topics, and release the records that Kafka has acknowledged. Never waits; call it in every pass."""

    def send(self, records: Sequence[Ready]) -> bool:
        """Send rows. Returns whether they went out at once; False when they are in the Kafka transaction."""

    def describe(self, table: TableEncoder) -> None:
        """Add a table's definition, unless its topic was last written with the same one."""

    def ensure(self, need: EventTopic) -> None:
        """Create the topic of an event if it is missing, or check that it loses none."""

    def ask_again(self, table: str, keys: Sequence[bytes]) -> None:
        """Add a request to publish these keys again, as the table has them by then."""

    def empty(
        self, need: Empty, *, commit: Callable[[], None], sign_of_life: Callable[[], None], stop: threading.Event
    ) -> bool:
        """Add tombstones for every live key of a topic; False when stopped before the last one."""

    def commit(self, progress: Progress) -> None:
        """Commit the Kafka transaction with this progress."""

    def cover(self, progress: Progress) -> None:
        """Let this progress follow the rows that were sent at once, if the rule says so."""

    def covered(self) -> tuple[Progress, float] | None:
        """Returns a progress that has arrived, once, and how many seconds its commit took."""

    def end(self, progress: Progress) -> None:
        """Tell readers that nothing is beyond this progress, if they were told that something may be."""


class BackfillPort(Protocol):
    """What goes on beside the stream: backfills and repairs."""

    @property
    def is_active(self) -> bool:
        """Whether ``step`` has something to do, now or soon."""

    @property
    def wants_flush(self) -> bool:
        """Whether a record waits to be written although no row was published."""

    def demand(self, demand: Demand) -> None:
        """Take up a demand of the bridge itself. It is recorded with the next Kafka commit, whatever that holds."""

    def begin_anew(self, demand: Demand, topic: str) -> int:
        """Take up the backfill of a table whose topic is emptied first. Returns the ordinal of the tombstones."""

    def attend(self) -> None:
        """Take up new work."""

    def step(self, commit: Callable[[], None]) -> int:
        """Publish a portion. Returns the bytes produced. It may ``commit`` the Kafka transaction before that."""

    def flush(self, lsn: LSN) -> None:
        """Record how far backfills are, in the Kafka transaction that is about to be committed."""


class LoopSides(NamedTuple):
    """All that the loop works with. The stream gives frames, and takes confirmations."""

    stream: WalStream
    source: SourcePort
    kafka: KafkaPort
    backfill: BackfillPort
