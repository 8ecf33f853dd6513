"""Lists in a YAML file grow and shrink by an entry, and every other byte stays."""

from __future__ import annotations

import pytest
import yaml

from cdc.base.config.edit import CannotEdit, add_entry, remove_entry

BLOCK = """\
# on top
source:
  dsn: dbname=shop  # where
  tables:  # which
    # the big one
    - public.orders   # most
    - "public.Quoted"
  exclude: []  # none yet
kafka: {bootstrap: 'k:9092'}
"""
FLOW = "source: {dsn: x, tables: [public.a, public.b], exclude: [public.c]}\n"
TABLES, EXCLUDE = ("source", "tables"), ("source", "exclude")


def entries(text: str, path: tuple[str, str]) -> list[str]:
    found: list[str] = yaml.safe_load(text)[path[0]][path[1]]
    return found


@pytest.mark.parametrize("entry", ["public.new", "public.*", "Ünï.with space", "a.b: c", "x.'q\"", "public.- # no"])
@pytest.mark.parametrize(("text", "path"), [(BLOCK, TABLES), (BLOCK, EXCLUDE), (FLOW, TABLES), (FLOW, EXCLUDE)])
def test_added_and_taken_out_again(text: str, path: tuple[str, str], entry: str) -> None:
    longer = add_entry(text, path, entry)
    assert entries(longer, path) == [*entries(text, path), entry]
    assert all(line in longer for line in text.splitlines() if "#" in line and "exclude" not in line)
    if len(entries(longer, path)) > 1:
        assert remove_entry(longer, path, entry) == text


def test_the_first_and_the_last_are_taken_out() -> None:
    assert "most" not in remove_entry(BLOCK, TABLES, "public.orders")
    assert entries(remove_entry(BLOCK, TABLES, "public.Quoted"), TABLES) == ["public.orders"]
    assert remove_entry(FLOW, TABLES, "public.a") == FLOW.replace("public.a, ", "")


def test_a_missing_list_is_made_with_what_held_without_it() -> None:
    text = "source:\n  dsn: x\n  # last\nkafka: {}\n"
    longer = add_entry(text, TABLES, "audit.log", ["public.*"])
    assert yaml.safe_load(longer)["source"] == {"tables": ["public.*", "audit.log"], "dsn": "x"}
    assert longer.replace("  tables: [public.*, audit.log]\n", "") == text


@pytest.mark.parametrize(
    ("text", "path"),
    [("source: {dsn: x}\n", TABLES), ("name: x\n", TABLES), ("source:\n  tables: a,b\n", TABLES)],
)
def test_other_ways_to_write_are_left_alone(text: str, path: tuple[str, str]) -> None:
    with pytest.raises(CannotEdit):
        add_entry(text, path, "public.a")


def test_the_last_entry_stays() -> None:
    with pytest.raises(CannotEdit):
        remove_entry(FLOW, EXCLUDE, "public.c")
