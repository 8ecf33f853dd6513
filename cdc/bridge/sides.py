"""What the bridge's loop stands between, as it sees it: the source, Kafka, and the backfill beside the stream."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from cdc.base.lsn import LSN
from cdc.bridge.capture.stream import WalStream
from cdc.bridge.coverage import Coverage, CoverageRule
from cdc.bridge.encode import TableEncoder
from cdc.bridge.order.demand import Demand
from cdc.bridge.order.needs import Definition, Empty, Rows
from cdc.bridge.rereader import Reading
from cdc.contract.change import Relation
from cdc.contract.record import Progress, Ready
from cdc.contract.snapshot import Snapshot


class FoundRelation(NamedTuple):
    """A relation looked up.

    Attributes:
        table: None when it is not ours to publish.
        begins_anew: its topic has to be emptied first.
        demand: the backfill that it needs.
    """

    table: TableEncoder | None
    begins_anew: bool = False
    demand: Demand | None = None


class SourcePort(Protocol):
    """What the loop asks of the source."""

    def snapshot(self) -> Snapshot:
        """What it sees now."""

    def look_up(self, need: Definition) -> FoundRelation | None:
        """How a relation is encoded; None when that cannot be told yet."""

    def meet(self, relation: Relation) -> Sequence[Demand]:
        """A relation was described; what must be published again for it."""

    def begins_anew(self, table: TableEncoder) -> Demand | None:
        """The backfill that a table needs whose topic must be emptied first; None when it need not."""

    def read(self, need: Rows, timeout_s: float) -> Reading | None:
        """Rows as they are now; None when there is no answer yet."""


class KafkaPort(Protocol):
    """What the loop does to Kafka."""

    @property
    def coverage(self) -> Coverage:
        """How what was sent stands to the stored progress."""

    @property
    def rule(self) -> CoverageRule:
        """What is to be done as it stands."""

    @property
    def is_busy(self) -> bool:
        """Whether a portion of a backfill should wait, so that the next commit need not."""

    def look(self) -> None:
        """See whether the topics are what they were, and let go of what they have; in every pass, and never waits."""

    def send(self, records: Sequence[Ready]) -> bool:
        """Send rows; whether they went at once, False when they are in the Kafka transaction."""

    def describe(self, table: TableEncoder) -> None:
        """Add a table's definition, unless its topic was last written with it."""

    def ask_again(self, table: str, keys: Sequence[bytes]) -> None:
        """Add the request to publish these keys once more, as the table has them by then."""

    def empty(
        self, need: Empty, *, commit: Callable[[], None], sign_of_life: Callable[[], None], stop: threading.Event
    ) -> bool:
        """Add tombstones for every live key of a topic; False when stopped before the last one."""

    def commit(self, progress: Progress) -> None:
        """Commit, with this progress."""

    def cover(self, progress: Progress) -> None:
        """Have this progress follow the rows that were sent at once, where the rule says so."""

    def covered(self) -> tuple[Progress, float] | None:
        """The progress that has followed, told once, and how many seconds its commit took."""

    def end(self, progress: Progress) -> None:
        """Say that nothing is beyond this progress, if readers were told that something may be."""


class BackfillPort(Protocol):
    """What goes on beside the stream: the backfill."""

    @property
    def is_active(self) -> bool:
        """Whether ``step`` has something to do, now or soon."""

    @property
    def wants_flush(self) -> bool:
        """Whether something waits to be written although no row was published."""

    def demand(self, demand: Demand) -> None:
        """Take up what the bridge itself asks for; on record with the next Kafka commit, whatever that holds."""

    def attend(self) -> None:
        """Take up new work."""

    def step(self, commit: Callable[[], None]) -> int:
        """Publish a portion; bytes produced. May ``commit`` the Kafka transaction before it."""

    def flush(self, lsn: LSN) -> None:
        """Write down how far it is, into the Kafka transaction that is about to be committed."""


class LoopSides(NamedTuple):
    """All of it, and the stream: frames in, confirmations out."""

    stream: WalStream
    source: SourcePort
    kafka: KafkaPort
    backfill: BackfillPort
