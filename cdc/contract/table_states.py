"""The states of a replica's or a view's table, and where each event leads. Pure data.

The sink keeps them in ``cdc.mirrored_table``, a view in its store. Both move through this one table of transitions, so
that a state means the same in ``cdc status``, in metrics and in a view's answers.

The design: docs/design/cuts.md, which shows the table.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from cdc.contract.ports import CutStanding


class TableState(enum.StrEnum):
    """How a table relates to its source table. ``metrics.TABLE_STATES`` has the same names."""

    LOADING = "loading"
    CATCHING_UP = "catching_up"
    REBUILDING = "rebuilding"
    EXACT = "exact"
    EXCEPTED = "excepted"
    STOPPED = "stopped"


MEANINGS: Final[Mapping[TableState, str]] = {
    TableState.LOADING: "its topic does not hold every row yet, or was not read to its end",
    TableState.CATCHING_UP: "it was exact; now there is no LSN at which it is known to equal the source",
    TableState.REBUILDING: "its topic is read from the first record again, over older rows",
    TableState.EXACT: "it equals the source table at the LSN of the cut",
    TableState.EXCEPTED: "but for rows in quarantine, it equals the source table at the LSN of the cut",
    TableState.STOPPED: "it takes no rows until somebody acts",
}

IN_CUT: Final = frozenset({TableState.EXACT, TableState.EXCEPTED})
"""The states of tables that a cut speaks of."""


class TableEvent(enum.Enum):
    """What happens to a table; the value describes it in words."""

    READ = "its topic is read from the first record"
    READ_AGAIN = "its topic must be read from the first record again"
    RESUMED = "a session goes on where the last one stopped"
    REBUILD_RESUMED = "a session goes on with a rebuild"
    EMPTIED = "its rows are deleted, because it has another key"
    LEFT_OUT = "it is left out of the cut, for a lock or a new session"
    JOINED = "it joins the cut: its topic was read to the end"
    INCOMPLETE = "at a cut, its topic does not hold every row"
    UNPROVEN = "a cut does not prove it equal to the source"
    PROVEN = "a cut proves it equal to the source"
    PROVEN_BUT = "a cut proves it equal to the source, but for rows in quarantine"
    REFUSED = "it cannot take rows"


_STAYS: Final = {state: state for state in TableState}
_TAKES_ROWS: Final = [state for state in TableState if state is not TableState.STOPPED]
_PROVABLE: Final = [state for state in _TAKES_ROWS if state is not TableState.REBUILDING]

# Some cells are missing for a reason: a stopped table is part of no cut, and a table that is rebuilt must join the cut
# before a cut can prove it. A defect that leads there raises KeyError and ends the session, rather than call it exact.
TRANSITIONS: Final[Mapping[TableEvent, Mapping[TableState, TableState]]] = {
    TableEvent.READ: dict.fromkeys(TableState, TableState.LOADING),
    TableEvent.READ_AGAIN: dict.fromkeys(TableState, TableState.REBUILDING),
    TableEvent.RESUMED: {**_STAYS, TableState.STOPPED: TableState.LOADING},
    TableEvent.REBUILD_RESUMED: dict.fromkeys(TableState, TableState.REBUILDING),
    TableEvent.EMPTIED: {
        **dict.fromkeys(TableState, TableState.LOADING),
        TableState.REBUILDING: TableState.REBUILDING,
    },
    TableEvent.LEFT_OUT: {**_STAYS, **dict.fromkeys(IN_CUT, TableState.CATCHING_UP)},
    TableEvent.JOINED: {
        TableState.LOADING: TableState.LOADING,
        TableState.CATCHING_UP: TableState.CATCHING_UP,
        TableState.REBUILDING: TableState.LOADING,
        TableState.EXACT: TableState.EXACT,
        TableState.EXCEPTED: TableState.EXCEPTED,
    },
    TableEvent.INCOMPLETE: {
        **dict.fromkeys(_TAKES_ROWS, TableState.LOADING),
        TableState.REBUILDING: TableState.REBUILDING,
    },
    TableEvent.UNPROVEN: {
        TableState.LOADING: TableState.LOADING,
        TableState.CATCHING_UP: TableState.CATCHING_UP,
        TableState.REBUILDING: TableState.REBUILDING,
        **dict.fromkeys(IN_CUT, TableState.CATCHING_UP),
    },
    TableEvent.PROVEN: dict.fromkeys(_PROVABLE, TableState.EXACT),
    TableEvent.PROVEN_BUT: dict.fromkeys(_PROVABLE, TableState.EXCEPTED),
    TableEvent.REFUSED: dict.fromkeys(TableState, TableState.STOPPED),
}


def moved(state: str, *events: TableEvent) -> TableState:
    """Returns the state to which events, one after another, lead.

    Raises:
        KeyError: an event cannot happen in its state, which is a defect of the caller.
    """
    found = TableState(state)
    for event in events:
        found = TRANSITIONS[event][found]
    return found


def at_cut(topic: str, standing: CutStanding) -> tuple[TableEvent, ...]:
    """Returns the events that a cut causes for a topic's table that takes rows."""
    joined = (TableEvent.JOINED,) if topic in standing.joining else ()
    if topic in standing.loading:
        return *joined, TableEvent.INCOMPLETE
    if topic in standing.outside or not standing.is_true:
        return *joined, TableEvent.UNPROVEN
    return *joined, TableEvent.PROVEN_BUT if topic in standing.lacking else TableEvent.PROVEN
