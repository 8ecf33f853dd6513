"""What somebody asks for and what the server prints: every spelling that we take is the value that PostgreSQL takes it
for, in PostgreSQL's text; and what we refuse, PostgreSQL refuses, or it is on the list of what we leave out.
"""

from __future__ import annotations

import os
import random
import sys
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from cdc.base.pgsettings import READING, startup_options
from cdc.contract.formats.canonical import reading_of
from tests.support.servers import Database
from tests.support.spellings import SINCE_15, SINCE_16, SPELLED, Spelled, is_left_out, spelling

SEED = int(os.environ.get("SEED", str(random.SystemRandom().randrange(1 << 32))))
SAMPLE, ALL = 150, 4_000
"""Of each type."""

PRINTED = """
CREATE FUNCTION printed(spelling text) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE value {base};
BEGIN
    value := spelling::{base};
    RETURN ARRAY[format('%s', value::{sql_type}), (value = value::{sql_type})::text];
EXCEPTION WHEN others THEN
    RETURN NULL;
END $$
"""
"""The text of a value, and whether the type holds it as it is; NULL for what is no value."""


class Told(NamedTuple):
    """What a server makes of a spelling: its text, None where there is no such value."""

    spelling: str
    text: str | None


def told(database: Database, sql_type: str, spellings: Sequence[str]) -> list[Told]:
    base = sql_type.partition("(")[0]
    base = {"char": "bpchar", "bit": '"bit"'}.get(base, base)
    with database.connect(options=startup_options(READING)) as connection:
        connection.execute("SET search_path TO public, pg_catalog")
        connection.execute(PRINTED.format(base=base, sql_type=sql_type).encode())
        query = "SELECT printed(t.v) FROM unnest(%s::text[]) WITH ORDINALITY AS t(v, place) ORDER BY place"
        found = [row[0] for row in connection.execute(query.encode(), [list(spellings)])]
        connection.execute("DROP FUNCTION printed")
    return [Told(text, None if is_lost(each) else each[0]) for text, each in zip(spellings, found, strict=True)]


def is_lost(found: Sequence[str] | None) -> bool:
    return found is None or found[1] != "true"


def compare(database: Database, sql_type: str, spelled: Spelled, count: int, seen: Counter[str]) -> list[str]:
    """Differences."""
    rng = random.Random(f"{SEED} {sql_type}")
    read, wrong = reading_of(sql_type).read, []
    for asked, text in told(database, sql_type, [spelling(rng, spelled) for _ in range(count)]):
        try:
            ours = read(asked)
        except ValueError as error:
            if text is not None and not is_left_out(asked, spelled):
                wrong.append(f"{sql_type} {asked!r}: refused ({error}), and a server says {text!r}")
            seen["refused by both" if text is None else "left out"] += 1
            continue
        if text != ours:
            wrong.append(f"{sql_type} {asked!r}: {ours!r}, and a server says {text!r}")
        elif read(ours) != ours:
            wrong.append(f"{sql_type} {ours!r} is canonical, and read as {read(ours)!r}")
        seen["taken by both"] += 1
    return wrong


@pytest.mark.pg(16, 18)
@pytest.mark.parametrize("count", [SAMPLE, pytest.param(ALL, marks=pytest.mark.long)], ids=["sample", "all"])
def test_every_spelling_is_what_the_server_takes_it_for(database: Database, count: int) -> None:
    replay = f"SEED={SEED} {sys.executable} -m pytest {__file__}"
    version = int(database.execute("SHOW server_version_num")[0][0]) // 10_000
    seen: Counter[str] = Counter()
    wrong: list[str] = []
    later = {15: SINCE_15, 16: SINCE_16}
    known = {name: each for since, types in later.items() if version >= since for name, each in types.items()}
    for sql_type, spelled in {**SPELLED, **known}.items():
        differing = compare(database, sql_type, spelled, count, seen)
        wrong += [*differing[:8], *([f"and {len(differing) - 8} more"] if len(differing) > 8 else [])]
    sys.stdout.write(f"{seen.total()} spellings: {dict(seen)}; {replay}\n")
    assert not wrong, "\n".join([*wrong, replay])
    assert seen["taken by both"] > seen.total() / 3, "the spellings are not all wrong"


@pytest.mark.parametrize("sql_type", [*SPELLED, *SINCE_15, *SINCE_16])
def test_an_example_is_a_value_of_its_type(sql_type: str) -> None:
    reading = reading_of(sql_type)
    assert reading.read(reading.example)
