"""The tables of states that the docs show are those that the code works by."""

from __future__ import annotations

from cdc.bridge.coverage import RULES, TRANSITIONS, Coverage, CoverageEvent, CoverageRule, Delivery
from cdc.contract.table_states import MEANINGS, TableEvent, TableState
from cdc.contract.table_states import TRANSITIONS as TABLE_TRANSITIONS
from tests.architecture.pages import page


def words(case: Coverage | CoverageEvent) -> str:
    return case.name.lower().replace("_", " ")


def table(*rows: list[str]) -> str:
    head, *others = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, "|" + "---|" * len(rows[0]), *others]) + "\n"


def rules(delivery: Delivery) -> str:
    """What the bridge does in each case."""
    found = [["case", "meaning", "the next rows go", "the next progress is", "it is due"]]
    for case, rule in RULES[delivery].items():
        found.append([words(case), case.value, rule.rows.value, rule.progress.value, due(case, rule)])
    return table(*found)


def due(case: Coverage, rule: CoverageRule) -> str:
    """When the next progress is due."""
    if case is Coverage.IN_TRANSACTION:
        return "when the Kafka transaction is full or old, or the stream pauses after a commit"
    if rule.every_s is None:
        return "when the current one is stored"
    condition = "even if nothing was sent" if rule.when_idle else "if the stream has moved"
    return f"{rule.every_s:g} s after the last" + ("" if case is Coverage.AHEAD else f", {condition}")


def transitions() -> str:
    """Where each event leads."""
    rows = [["case", *(each.value for each in CoverageEvent)]]
    for case, ways in TRANSITIONS.items():
        rows.append([words(case), *(words(ways[each]) if each in ways else "" for each in CoverageEvent)])
    return table(*rows)


def test_the_page_shows_what_the_loop_goes_by() -> None:
    text = page("docs/design/prompt.md").text
    for expected in (rules("transactional"), rules("idempotent"), transitions()):
        assert expected in text, f"put this into docs/design/prompt.md:\n\n{expected}"


def table_states() -> str:
    return table(["state", "that is"], *([f"`{each}`", MEANINGS[each]] for each in TableState))


def table_transitions() -> str:
    rows = [["what happens", *(f"`{each}`" for each in TableState)]]
    for event in TableEvent:
        ways = TABLE_TRANSITIONS[event]
        rows.append([event.value, *(ways[each].value if each in ways else "" for each in TableState)])
    return table(*rows)


def test_the_page_shows_how_tables_of_sinks_and_views_change_their_state() -> None:
    text = page("docs/design/cuts.md").text
    for expected in (table_states(), table_transitions()):
        assert expected in text, f"put this into docs/design/cuts.md:\n\n{expected}"
