"""Says how the stored progress relates to what was sent to Kafka, and what the bridge does in each case. Pure data.

Both deliveries run in one loop, and differ only in these tables. With ``transactional``, rows wait in a Kafka
transaction, and the progress that covers them is committed with it. With ``idempotent``, rows go to their topics at
once, and a progress follows when Kafka has all of them. What is not an ordinary row goes into a Kafka transaction here,
too; until that is committed, the two are alike.

docs/design/prompt.md shows these tables, and explains them.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

IDLE_S: Final = 1.0
"""One progress a second is enough for an idle database, and keeps its slot from holding WAL back. Inside a source
transaction, a progress is as rare, because readers cannot go on with half a transaction."""
_PACE_S: Final = 0.05
"""The pause between two progresses. Each one costs the brokers a Kafka transaction, but replicas wait for it."""

Delivery: TypeAlias = Literal["transactional", "idempotent"]


class Coverage(enum.Enum):
    """How the progress that is stored in Kafka relates to what was sent. The value says it in words."""

    COVERED = "the stored progress covers everything that was sent"
    AHEAD = "rows were sent that no progress covers yet"
    COVERING = "a progress that covers everything is being published"
    OUTRUN = "a progress is being published, and more rows were sent after it was drawn up"
    IN_TRANSACTION = "a Kafka transaction holds records"


UNDER_WAY: Final = frozenset({Coverage.AHEAD, Coverage.COVERING, Coverage.OUTRUN})
"""The cases in which Kafka has to answer soon, or a progress is due soon."""


class RowsGo(enum.Enum):
    """The place that the next rows of the stream go to."""

    AT_ONCE = "to their topics at once"
    INSIDE = "into the Kafka transaction"


class ProgressGoes(enum.Enum):
    """The way in which the next progress is published."""

    INSIDE = "committed in the Kafka transaction, while the loop waits"
    AFTER = "published after the rows, while more rows go out"
    LATER = "drawn up after the current one"


class CoverageRule(NamedTuple):
    """What the bridge does in one case.

    Attributes:
        rows: where the next rows go.
        progress: how the next progress is published.
        every_s: how many seconds after the last progress the next one is due; None if the batch decides, or another
            progress is on its way.
        when_idle: a progress is due even if the stream has not moved, to prove that no other bridge took over.
    """

    rows: RowsGo
    progress: ProgressGoes
    every_s: float | None
    when_idle: bool = False


RULES: Final[Mapping[Delivery, Mapping[Coverage, CoverageRule]]] = {
    "transactional": {
        Coverage.COVERED: CoverageRule(RowsGo.INSIDE, ProgressGoes.INSIDE, IDLE_S),
        Coverage.IN_TRANSACTION: CoverageRule(RowsGo.INSIDE, ProgressGoes.INSIDE, None),
    },
    "idempotent": {
        Coverage.COVERED: CoverageRule(RowsGo.AT_ONCE, ProgressGoes.AFTER, IDLE_S, when_idle=True),
        Coverage.AHEAD: CoverageRule(RowsGo.AT_ONCE, ProgressGoes.AFTER, _PACE_S, when_idle=True),
        Coverage.COVERING: CoverageRule(RowsGo.AT_ONCE, ProgressGoes.LATER, None),
        Coverage.OUTRUN: CoverageRule(RowsGo.AT_ONCE, ProgressGoes.LATER, None),
        Coverage.IN_TRANSACTION: CoverageRule(RowsGo.INSIDE, ProgressGoes.INSIDE, None),
    },
}
"""The cases that each delivery knows, and their rules."""


class CoverageEvent(enum.Enum):
    """What happens. The value says it in words."""

    ROWS = "rows are sent at once"
    RECORDS = "records are added to the Kafka transaction"
    COVER = "a progress is drawn up"
    ARRIVED = "that progress is stored"
    COMMIT = "the loop commits a progress"


TRANSITIONS: Final[Mapping[Coverage, Mapping[CoverageEvent, Coverage]]] = {
    Coverage.COVERED: {
        CoverageEvent.ROWS: Coverage.AHEAD,
        CoverageEvent.RECORDS: Coverage.IN_TRANSACTION,
        CoverageEvent.COVER: Coverage.COVERING,
        CoverageEvent.COMMIT: Coverage.COVERED,
    },
    Coverage.AHEAD: {
        CoverageEvent.ROWS: Coverage.AHEAD,
        CoverageEvent.RECORDS: Coverage.IN_TRANSACTION,
        CoverageEvent.COVER: Coverage.COVERING,
        CoverageEvent.COMMIT: Coverage.COVERED,
    },
    Coverage.COVERING: {
        CoverageEvent.ROWS: Coverage.OUTRUN,
        CoverageEvent.RECORDS: Coverage.IN_TRANSACTION,
        CoverageEvent.ARRIVED: Coverage.COVERED,
        CoverageEvent.COMMIT: Coverage.COVERED,
    },
    Coverage.OUTRUN: {
        CoverageEvent.ROWS: Coverage.OUTRUN,
        CoverageEvent.RECORDS: Coverage.IN_TRANSACTION,
        CoverageEvent.ARRIVED: Coverage.AHEAD,
        CoverageEvent.COMMIT: Coverage.COVERED,
    },
    Coverage.IN_TRANSACTION: {
        CoverageEvent.RECORDS: Coverage.IN_TRANSACTION,
        CoverageEvent.COMMIT: Coverage.COVERED,
    },
}
"""The case that follows each case and event. What is not listed cannot happen: no row is sent at once beside an open
Kafka transaction, and no progress is drawn up while another one is on its way."""
