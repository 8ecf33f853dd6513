"""Options of ``cdc backfill`` two by two: whatever is combined, what was asked for is mended, and nothing else is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest

from cdc.lab.proof.comparison import Rows, TableShape, describe, difference, pinned, table_rows, topic_rows
from tests.support.deployment import Deploy, Deployment
from tests.support.pairs import Choice, covering
from tests.support.servers import Database
from tests.support.soak import times
from tests.support.topic_damage import Damage, live_rows
from tests.support.waiting import eventually

CLIENT, OTHER = TABLES = ("public.client", "public.Größe")
ROWS: Final = 200
PARTITIONS: Final = 2

SAMPLE: Final = 5
"""So many combinations in an ordinary run, all of them in ``make soak``."""

OPTIONS: Final[Mapping[str, tuple[Any, ...]]] = {
    "tables": ((CLIENT,), (OTHER, CLIENT), ()),
    "where": (None, "id > 100 OR name = '?'"),
    "rate": (None, 2000),
    "sweep": (False, True),
    "parallel": (None, 1, 4),
    "no_follow": (False, True),
    "yes": (False, True),
    "bridge": (True, False),
    "before": (None, "running", "paused"),
}
"""``bridge``: whether one runs; ``before``: a backfill of the first table, which the command is to replace."""

DAMAGE: Final[Mapping[int, bytes | None]] = {97: b"wrong", 98: None, 120: b"wrong", 900: b"made up"}
"""By key the name that somebody wrote into the topic; None when the row was deleted there.

A backfill of one row a second, which is under way before, does not get there.
"""


def allowed(choice: Choice) -> bool:
    """What the command takes together."""
    is_named = choice.get("tables", TABLES) != ()
    return (choice.get("where") is None or (is_named and not choice.get("sweep"))) and (
        choice.get("before") is None or choice.get("yes", True)
    )


@pytest.fixture
def shop(database: Database, deploy: Deploy) -> Deployment:
    """Two tables whose first backfill is over, and a bridge that runs."""
    for table in ("client", '"Größe"'):
        database.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, name text)")
        database.execute(f"INSERT INTO {table} SELECT n, 'name ' || n FROM generate_series(1, {ROWS}) n")
    deployment = deploy(topics={"partitions": PARTITIONS}, http={"bridge_port": None})
    deployment.start_bridge()
    deployment.wait_backfilled(*TABLES)
    return deployment


class Runs:
    """Backfills of one deployment, each after the same damage to the topics of both tables."""

    def __init__(self, shop: Deployment) -> None:
        self._shop = shop
        with pinned(shop.source.dsn) as source:
            self._shapes: dict[str, TableShape] = {table: describe(source, table) for table in TABLES}
        records = {(each.topic, each.key): each for each in shop.records(*TABLES)}
        self._good = {
            table: {key: records[shop.topic(table), _key(min(key, ROWS))] for key in DAMAGE} for table in TABLES
        }

    def check(self, number: int, choice: Choice) -> None:
        """One combination."""
        self._begin_before(choice["before"])
        if not choice["bridge"]:
            self._shop.bridge.stop()
        self._write_damage()
        self._change_rows(number)
        known = self._requests()
        self._shop.command("backfill", *self._arguments(choice))
        if not choice["bridge"]:
            self._shop.start_bridge()
        named = choice["tables"] or TABLES
        self._wait_done(named, known, choice)
        self._shop.wait_published()
        for table in TABLES:
            self._assert_holds(table, choice, is_named=table in named)
        self._mend()

    def _arguments(self, choice: Choice) -> list[str]:
        given = list(choice["tables"])
        for name in ("where", "rate", "parallel"):
            given += [] if choice[name] is None else [f"--{name}", str(choice[name])]
        flags = {"sweep": "--sweep", "no_follow": "--no-follow", "yes": "--yes"}
        return given + [flag for name, flag in flags.items() if choice[name]]

    def _begin_before(self, state: str | None) -> None:
        if state is None:
            return
        self._shop.command("backfill", CLIENT, "--rate", "1", "--no-follow")
        self._wait_state("running")
        if state == "paused":
            self._shop.command("backfill", "--pause", CLIENT)
            self._wait_state("paused")

    def _wait_state(self, state: str) -> None:
        eventually(lambda: self._shop.backfills()[CLIENT].state == state, 30, self._shop.bridge.tail)

    def _write_damage(self) -> None:
        damage = Damage(self._shop)
        for table, good in self._good.items():
            for key, name in DAMAGE.items():
                value = None if name is None else b'{"id":%d,"name":"%s"}' % (key, name)
                damage.write(table, _key(key), value, header=good[key].header)
        damage.done()

    def _mend(self) -> None:
        damage = Damage(self._shop)
        for table, good in self._good.items():
            for key, record in good.items():
                damage.write(table, _key(key), record.value if key <= ROWS else None, header=record.header)
        damage.done()

    def _change_rows(self, number: int) -> None:
        """What the stream has to bring, before or beside the backfill."""
        for table in ("client", '"Größe"'):
            self._shop.source.execute(
                f"UPDATE {table} SET name = 'changed {number}' WHERE id IN (8, 108);"
                f"DELETE FROM {table} WHERE id > {ROWS}; INSERT INTO {table} VALUES ({1000 + number}, 'new')"
            )

    def _requests(self) -> dict[str, str]:
        return {table: each.request for table, each in self._shop.backfills().items()}

    def _wait_done(self, named: Sequence[str], known: Mapping[str, str], choice: Choice) -> None:
        def is_done() -> bool:
            found = self._shop.backfills()
            return all(found[each].state == "done" and found[each].request != known[each] for each in named)

        if choice["no_follow"]:
            eventually(is_done, 60, lambda: f"{choice}: {self._shop.backfills()}\n{self._shop.bridge.tail()}")
        assert is_done(), f"{choice}: {self._shop.backfills()}"

    def _assert_holds(self, table: str, choice: Choice, *, is_named: bool) -> None:
        shape = self._shapes[table]
        with pinned(self._shop.source.dsn) as source:
            expected: Rows = dict(table_rows(source, shape))
        for key, name in DAMAGE.items():
            is_row = key <= ROWS
            mended = choice["sweep"] if not is_row else choice["where"] is None or key > 100
            if is_named and mended:
                continue
            row = (str(key).encode(), name)
            if name is None:
                del expected[shape.key_of(row)]
            else:
                expected[shape.key_of(row)] = row
        found = topic_rows(live_rows(self._shop.records(table), PARTITIONS), shape)
        assert difference("topic", expected, found, shape) is None, (table, choice)


def _key(number: int) -> bytes:
    return b'{"id":%d}' % number


@pytest.mark.pg(16, matrix=False)
@pytest.mark.timeout(1800)
@pytest.mark.soak
def test_any_two_options_mend_what_was_asked_for(shop: Deployment) -> None:
    runs, rows = Runs(shop), covering(OPTIONS, allowed)
    for number, choice in enumerate(rows[: times(SAMPLE, soak=len(rows))]):
        runs.check(number, choice)
    shop.stop()
