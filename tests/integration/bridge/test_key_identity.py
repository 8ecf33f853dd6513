"""Key columns that keep their name and not their values: source = folded topic, row by row, whatever was done to them.

Each case is a table of its own, and all tables of a deployment are altered at once, so hundreds of cases cost little
more than one. Behind the change comes an UPDATE, which would write a second key, and a DELETE, which would miss the first.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from typing import Final, Literal, NamedTuple, TypeAlias

import pytest

from cdc.contract.key_identity import keeps_text
from tests.support.deployment import Deploy, Deployment
from tests.support.servers import Database
from tests.support.waiting import eventually

Change: TypeAlias = Literal["alter", "drop and add", "rename", "swap"]
When: TypeAlias = Literal["online", "stopped", "killed", "killed healing"]

ROWS: Final = 12
NUMBERS: Final = {
    "int2": "{}::int2",
    "int4": "{}::int4",
    "int8": "{}::int8",
    "numeric(10,2)": "{}::numeric(10,2)",
    "numeric(10,0)": "{}::numeric(10,0)",
    "text": "{}::text",
    "varchar(20)": "{}::varchar(20)",
    "char(8)": "{}::char(8)",
}
"""Types, and the value that a table has for a number. The texts of these can be cast to one another."""
TIMES: Final = {
    "timestamp": "'2020-01-01'::timestamp + {} * interval '1 h'",
    "timestamptz": "'2020-01-01'::timestamptz + {} * interval '1 h'",
    "timestamp(3)": "'2020-01-01'::timestamp(3) + {} * interval '1 h'",
}
OTHERS: Final = {"uuid": "md5(({})::text)::uuid", "bytea": "decode(md5(({})::text), 'hex')"}
VALUES: Final = {**NUMBERS, **TIMES, **OTHERS}
CHANGES: Final[tuple[Change, ...]] = ("alter", "drop and add", "rename", "swap")


class Case(NamedTuple):
    """A table ``t<number>`` whose key is of type ``old`` and becomes one of type ``new``."""

    number: int
    change: Change
    old: str
    new: str
    is_full: bool = False

    @property
    def table(self) -> str:
        return f"t{self.number}"

    @property
    def made(self) -> str:
        """With a column before the key that is dropped, so that numbers are not just counted."""
        t, old, new = self.table, VALUES[self.old].format("i"), VALUES[self.new].format("(1000 + i)")
        identity = f"; ALTER TABLE {t} REPLICA IDENTITY FULL" if self.is_full else ""
        return (
            f"CREATE TABLE {t} (gone int, id {self.old} PRIMARY KEY, u {self.new} NOT NULL UNIQUE, n int);"
            f"INSERT INTO {t} SELECT 1, {old}, {new}, i FROM generate_series(1, {ROWS}) i;"
            f"ALTER TABLE {t} DROP COLUMN gone{identity}"
        )

    @property
    def altered(self) -> str:
        t = self.table
        begin, end = f"ALTER TABLE {t} DROP CONSTRAINT {t}_pkey;", f"; ALTER TABLE {t} ADD PRIMARY KEY (id)"
        taken = f"ALTER TABLE {t} RENAME id TO id_old; ALTER TABLE {t} RENAME u TO id"
        match self.change:
            case "alter":
                value = "md5(id)::uuid" if self.new == "uuid" else f"id::{self.new}"
                return f"ALTER TABLE {t} ALTER id TYPE {self.new} USING {value}"
            case "drop and add":
                value = VALUES[self.new].format(f"nextval('{t}_numbers')::int")
                return (
                    f"CREATE SEQUENCE {t}_numbers;"
                    f"ALTER TABLE {t} DROP COLUMN id, ADD COLUMN id {self.new} DEFAULT {value} PRIMARY KEY"
                )
            case "rename":
                return begin + taken + end
            case "swap":
                return f"{begin}{taken}; ALTER TABLE {t} RENAME id_old TO u{end}"

    @property
    def behind(self) -> str:
        return f"UPDATE {self.table} SET n = n + 100 WHERE n <= 4; DELETE FROM {self.table} WHERE n BETWEEN 5 AND 8"

    @property
    def goes_on(self) -> bool:
        """Whether rows keep their keys."""
        return self.change == "alter" and keeps_text(self.old, self.new)


def _pairs(change: Change) -> Iterator[tuple[str, str]]:
    """For ``alter`` those that can be cast and that are two types; else all."""
    if change != "alter":
        yield from product(VALUES, VALUES)
    else:
        for types in (NUMBERS, TIMES):
            yield from ((old, new) for old, new in product(types, types) if old != new)
        yield from ((old, "text") for old in (*TIMES, *OTHERS))
        yield "text", "uuid"


def _cases() -> list[Case]:
    found = [(change, old, new) for change in CHANGES for old, new in _pairs(change)]
    return [Case(number, *each, is_full=number % 3 == 0) for number, each in enumerate(found)]


SEEN: Final = {
    ("alter", "text", "uuid"),
    ("alter", "int4", "text"),
    ("alter", "char(8)", "text"),
    ("alter", "numeric(10,2)", "numeric(10,0)"),
    ("alter", "timestamp", "timestamptz"),
    ("alter", "int4", "int8"),
    ("alter", "varchar(20)", "text"),
    ("drop and add", "int4", "int4"),
    ("rename", "int4", "uuid"),
    ("swap", "int4", "int4"),
}
"""What people saw, and two that keep their keys."""
ALL: Final = _cases()
SAMPLE: Final = [each for each in ALL if each.number % 50 == 7 or (each.change, each.old, each.new) in SEEN]


@contextmanager
def _meanwhile(deployment: Deployment, when: When) -> Iterator[None]:
    """What is done inside happens to a bridge that runs, or does not."""
    if when == "stopped":
        deployment.bridge.stop()
    elif when == "killed":
        deployment.bridge.kill()
    yield
    if when == "killed healing":
        for visit in ("bridge.inside_begin_anew:1", "bridge.inside_begin_anew:2"):
            assert deployment.bridge.wait(60) == -signal.SIGKILL
            deployment.bridge.start(crashpoint=visit)
        assert deployment.bridge.wait(60) == -signal.SIGKILL
    if when != "online":
        deployment.start_bridge()


def _hold(cases: list[Case], database: Database, deploy: Deploy, delivery: str, when: When) -> None:
    """All tables are altered at once; behind that each topic holds what its table holds, and says so."""
    limit = 60 + len(cases)
    database.execute(";".join(each.made for each in cases))
    tables = {each: f"public.{each.table}" for each in cases}
    deployment = deploy(source={"tables": ["public.t*"], "on_gap": "rebackfill"}, topics={"partitions": 2})
    deployment.deliver(delivery)
    deployment.start_bridge(crashpoint="bridge.inside_begin_anew:1" if when == "killed healing" else "")
    deployment.wait_backfilled(*tables.values(), timeout_s=limit)
    before = deployment.backfills()
    with _meanwhile(deployment, when):
        for each in cases:
            database.execute(f"{each.altered}; {each.behind}")
    deployment.wait_published(timeout_s=limit)

    def healed() -> bool:
        found = deployment.backfills()
        assert not deployment.bridge.ended, deployment.bridge.tail()
        return all(
            found[name].state == "done" and (each.goes_on or found[name].request != before[name].request)
            for each, name in tables.items()
        )

    eventually(healed, limit, deployment.bridge.tail)
    deployment.assert_published(*tables.values())
    after = deployment.backfills()
    again = [str(each) for each, name in tables.items() if each.goes_on and after[name].request != before[name].request]
    assert not again, f"these keep their keys, and were published again all the same: {again}"
    print(f"key identity: {len(cases)} cases, {delivery}, {when}: source = folded topic")


@pytest.mark.parametrize(
    ("delivery", "when"), [("transactional", "online"), ("idempotent", "stopped"), ("transactional", "killed healing")]
)
def test_no_row_is_left_under_the_key_of_another_column(
    database: Database, deploy: Deploy, delivery: str, when: When
) -> None:
    """40 rows in the source, 70 in topic and replica, and it said exact."""
    _hold(SAMPLE, database, deploy, delivery, when)


@pytest.mark.long
@pytest.mark.parametrize("when", ["online", "stopped", "killed", "killed healing"])
@pytest.mark.parametrize("delivery", ["transactional", "idempotent"])
def test_no_row_is_left_under_the_key_of_another_column_whatever_the_types(
    database: Database, deploy: Deploy, delivery: str, when: When
) -> None:
    """Every type by every type."""
    _hold(ALL, database, deploy, delivery, when)
