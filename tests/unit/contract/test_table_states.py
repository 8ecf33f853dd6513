"""The states of a table: what the table of transitions promises, and that two programs walk it alike."""

from __future__ import annotations

import itertools

import pytest

from cdc.base.metrics import TABLE_STATES
from cdc.contract.ports import CutStanding
from cdc.contract.table_states import MEANINGS, TRANSITIONS, TableEvent, TableState, at_cut, moved

CUT = {TableEvent.INCOMPLETE, TableEvent.UNPROVEN, TableEvent.PROVEN, TableEvent.PROVEN_BUT}
CANNOT = {
    (TableState.STOPPED, TableEvent.JOINED),
    *((TableState.STOPPED, event) for event in CUT),
    (TableState.REBUILDING, TableEvent.PROVEN),
    (TableState.REBUILDING, TableEvent.PROVEN_BUT),
}
"""What cannot happen: a stopped table is part of no cut, and a rebuilt one has to join first."""


def standing(
    *, is_true: bool = True, loading: str = "", outside: str = "", joining: str = "", lacking: str = ""
) -> CutStanding:
    return CutStanding(is_true, [loading], [outside], [joining], 0.0, [lacking])


def test_metrics_and_meanings_name_the_same_states() -> None:
    assert tuple(state.value for state in TableState) == TABLE_STATES == tuple(MEANINGS)


@pytest.mark.parametrize(("state", "event"), [*itertools.product(TableState, TableEvent)])
def test_every_event_leads_somewhere_or_is_refused(state: TableState, event: TableEvent) -> None:
    if (state, event) in CANNOT:
        with pytest.raises(KeyError):
            moved(state, event)
    else:
        assert moved(state, event) in TableState


def test_only_a_cut_that_proves_it_makes_a_table_exact() -> None:
    into = {(event, at) for event, ways in TRANSITIONS.items() for at, to in ways.items() if to is TableState.EXACT}
    assert {event for event, at in into if at is not TableState.EXACT} == {TableEvent.PROVEN}


def test_what_was_never_exact_does_not_catch_up() -> None:
    into = {at for ways in TRANSITIONS.values() for at, to in ways.items() if to is TableState.CATCHING_UP}
    assert into == {TableState.EXACT, TableState.EXCEPTED, TableState.CATCHING_UP}


def test_only_a_cut_knows_that_no_more_than_rows_in_quarantine_is_missing() -> None:
    into = {(event, at) for event, ways in TRANSITIONS.items() for at, to in ways.items() if to is TableState.EXCEPTED}
    assert {event for event, at in into if at is not TableState.EXCEPTED} == {TableEvent.PROVEN_BUT}


def test_only_a_new_start_or_the_join_ends_a_rebuild() -> None:
    out = {event for event, ways in TRANSITIONS.items() if ways.get(TableState.REBUILDING) != TableState.REBUILDING}
    assert out == {
        TableEvent.READ,
        TableEvent.JOINED,
        TableEvent.PROVEN,
        TableEvent.PROVEN_BUT,
        TableEvent.REFUSED,
    }


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (standing(), (TableEvent.PROVEN,)),
        (standing(is_true=False), (TableEvent.UNPROVEN,)),
        (standing(outside="t"), (TableEvent.UNPROVEN,)),
        (standing(loading="t"), (TableEvent.INCOMPLETE,)),
        (standing(loading="t", outside="t"), (TableEvent.INCOMPLETE,)),
        (standing(joining="t"), (TableEvent.JOINED, TableEvent.PROVEN)),
        (standing(joining="t", is_true=False), (TableEvent.JOINED, TableEvent.UNPROVEN)),
        (standing(joining="t", loading="t"), (TableEvent.JOINED, TableEvent.INCOMPLETE)),
        (standing(lacking="t"), (TableEvent.PROVEN_BUT,)),
        (standing(lacking="t", joining="t"), (TableEvent.JOINED, TableEvent.PROVEN_BUT)),
        (standing(lacking="t", is_true=False), (TableEvent.UNPROVEN,)),
        (standing(lacking="t", loading="t"), (TableEvent.INCOMPLETE,)),
        (standing(loading="other", outside="other", joining="other"), (TableEvent.PROVEN,)),
    ],
)
def test_what_a_cut_means_for_a_table(seen: CutStanding, expected: tuple[TableEvent, ...]) -> None:
    assert at_cut("t", seen) == expected


def test_a_rebuild_that_is_stopped_goes_on_and_ends_exact() -> None:
    state = moved("exact", TableEvent.READ_AGAIN, TableEvent.REFUSED, TableEvent.REBUILD_RESUMED)
    assert state is TableState.REBUILDING
    assert moved(state, *at_cut("t", CutStanding(True, (), ("t",), (), 0.0))) is TableState.REBUILDING
    assert moved(state, *at_cut("t", CutStanding(True, (), (), ("t",), 0.0))) is TableState.EXACT
