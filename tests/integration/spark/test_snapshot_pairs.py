"""Options of ``cdc snapshot`` two by two: whatever is combined, the files hold the rows of the point that was asked."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession

from cdc.ops.jobs.as_of import parse_as_of
from cdc.ops.jobs.launch import document
from cdc.spark.offsets import Brokers
from cdc.spark.snapshot import main as job_main
from cdc.spark.snapshot.folders import snapshots as finished
from cdc.spark.snapshot.manifest import Manifest, TableManifest
from tests.integration.spark.snapshots import Snapshots
from tests.integration.spark.typed_values import as_text
from tests.support.deployment import Deploy, Deployment
from tests.support.pairs import Choice, covering
from tests.support.servers import Database
from tests.support.soak import times

CLIENT, OTHER = "public.client", "public.Größe"
COLUMNS: Final[Mapping[str, Mapping[str, str]]] = {
    CLIENT: {
        "id": "int4", "Name": "text", "name": "text", "amount": "numeric(12,2)", "seen": "timestamptz", "born": "date",
        "doc": "jsonb",
    },
    OTHER: {"b": "text", "a": "int4", "v": "bool"},
}  # fmt: skip
ROWS: Final = 60

SAMPLE: Final = 2
"""So many combinations in an ordinary run, all of them in ``make soak``."""

OPTIONS: Final[Mapping[str, tuple[Any, ...]]] = {
    "tables": ((CLIENT,), (OTHER,), (OTHER, CLIENT)),
    "point": ("now", "lsn", "time", "offsets"),
    "state": (0, 1, 2),
    "keep": (None, 1, 2),
    "left": (None, "unfinished", "headless"),
    "conf": (
        {},
        {"spark.sql.session.timeZone": "Asia/Tokyo", "spark.sql.shuffle.partitions": "1"},
        {"spark.sql.caseSensitive": "false", "spark.sql.parquet.outputTimestampType": "INT96"},
    ),
}
"""``state`` is the moment that ``point`` names, the last one for now; ``left`` is what a killed run left behind."""

OLDER: Final = ("20200101T000000.000000Z", "20200102T000000.000000Z")
"""Snapshots that lie there."""


def allowed(choice: Choice) -> bool:
    """Now is the last state."""
    return choice.get("point") != "now" or choice.get("state", 2) == 2


@dataclass(frozen=True, slots=True)
class State:
    """What the tables held behind a commit, and the names of that moment."""

    lsn: str
    time_us: int
    offsets: Mapping[str, Mapping[int, int]]
    rows: Mapping[str, list[tuple[str | None, ...]]]


CHANGES: Final = (
    (
        "UPDATE client SET amount = amount + 0.10 WHERE id % 3 = 0",
        """UPDATE "Größe" SET v = NULL WHERE a % 2 = 0""",
    ),
    (
        "DELETE FROM client WHERE id % 5 = 0",
        "INSERT INTO client VALUES (5, NULL, 'again', -1, 'infinity', 'infinity', 'null')",
        """DELETE FROM "Größe" WHERE a > 50""",
    ),
    (
        "UPDATE client SET seen = '4000-01-01 BC', born = '0044-03-15 BC' WHERE id = 7",
        """UPDATE "Größe" SET b = b || '"' WHERE a = 9""",
        """INSERT INTO "Größe" VALUES ('', 1000, true)""",
    ),
)
"""Transactions, each a moment of its own."""


@pytest.fixture
def shop(database: Database, deploy: Deploy) -> Deployment:
    """Two tables of one deployment; the first has a history."""
    database.execute(
        'CREATE TABLE client (id int PRIMARY KEY, "Name" text, name text, amount numeric(12,2), seen timestamptz,'
        " born date, doc jsonb)"
    )
    database.execute(
        "INSERT INTO client SELECT n, 'N' || n, 'n' || n, n, '2020-02-02 20:20:20.2+02', '1969-12-31',"
        """ '{"a": [1.50, null]}'"""
        f" FROM generate_series(1, {ROWS}) n"
    )
    database.execute('CREATE TABLE "Größe" (b text, a int, v bool, PRIMARY KEY (a, b))')
    database.execute(f"INSERT INTO \"Größe\" SELECT 'ä' || n, n, true FROM generate_series(1, {ROWS}) n")
    deployment = deploy(topics={"partitions": 2, "history": [CLIENT], "min_compaction_lag_ms": 900_000})
    deployment.start_bridge()
    deployment.wait_backfilled(CLIENT, OTHER)
    return deployment


def read_states(snapshots: Snapshots) -> list[State]:
    """The moments behind each change."""
    deployment, states = snapshots.deployment, []
    database = deployment.source
    brokers = Brokers(snapshots.job(CLIENT).kafka)
    for change in CHANGES:
        database.execute(f"BEGIN; {'; '.join(change)}; COMMIT")
        lsn, now_us = database.execute(
            "SELECT pg_current_wal_insert_lsn()::text, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
        )[0]
        deployment.wait_published()
        ends = {table: dict(enumerate(brokers.extent(deployment.topic(table)).ends)) for table in COLUMNS}
        states.append(State(lsn, now_us, ends, {table: printed(database, table) for table in COLUMNS}))
    brokers.close()
    return states


def printed(database: Database, table: str) -> list[tuple[str | None, ...]]:
    """A table's rows as the server prints them in UTC, sorted."""
    columns = ", ".join(f'"{name}"::text' for name in COLUMNS[table])
    with database.connect(options="-c TimeZone=UTC") as connection:
        found = connection.execute(f'SELECT {columns} FROM "{table.split(".", 1)[1]}"').fetchall()
    return sorted(found, key=repr)


def stored(place: Path, table: TableManifest) -> list[tuple[str | None, ...]]:
    """The same out of a snapshot's files."""
    rows = []
    for row in pyarrow.parquet.read_table(place / table.folder).to_pylist():
        beyond = dict(row["_beyond"] or ())
        columns = COLUMNS[table.table].items()
        texts = (beyond.get(name, _printed(row[name], sql_type)) for name, sql_type in columns)
        rows.append(tuple(texts))
    return sorted(rows, key=repr)


def _printed(value: Any, sql_type: str) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    text: str | None = as_text(value.replace(tzinfo=None) if isinstance(value, datetime) else value, sql_type)
    return text


class Runs:
    """Snapshots of one deployment, in one session."""

    def __init__(self, snapshots: Snapshots, monkeypatch: pytest.MonkeyPatch) -> None:
        self._snapshots = snapshots
        self._spark = snapshots.spark
        self._folder = snapshots.folder
        self._states = read_states(snapshots)
        monkeypatch.setattr(job_main, "open_session", lambda *_: contextlib.nullcontext(self._spark))

    def check(self, number: int, choice: Choice) -> None:
        """One combination, in a folder of its own where two snapshots lie."""
        folder, state = self._folder / str(number), self._states[choice["state"]]
        self._lay_out(folder, choice["left"])
        point, offsets = self._named(choice, state)
        job = self._snapshots.job(*choice["tables"], as_of=parse_as_of(point, offsets))
        before = {name: self._spark.conf.get(name) for name in choice["conf"]}
        for name, value in choice["conf"].items():
            self._spark.conf.set(name, value)
        try:
            made = job.model_copy(update={"folder": str(folder), "keep": choice["keep"]})
            assert job_main.main(document(made)) == 0, choice
        finally:
            for name, value in before.items():
                self._spark.conf.set(name, value or "")
        place = self._assert_kept(folder, choice)
        manifest = Manifest.model_validate_json((place / "manifest.json").read_text(encoding="utf-8"))
        assert (manifest.lsn is None) == (choice["point"] == "offsets"), choice
        assert [each.table for each in manifest.tables] == list(choice["tables"]), choice
        for table in manifest.tables:
            assert stored(place, table) == state.rows[table.table], (choice, table)
            assert table.rows == len(state.rows[table.table]), (choice, table)

    def _named(self, choice: Choice, state: State) -> tuple[str, str | None]:
        """``--as-of`` and ``--offsets``."""
        topics = {self._snapshots.deployment.topic(table): state.offsets[table] for table in choice["tables"]}
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=state.time_us)
        points = {"lsn": state.lsn, "time": moment.isoformat()}
        return points.get(choice["point"], "now"), json.dumps(topics) if choice["point"] == "offsets" else None

    def _lay_out(self, folder: Path, left: str | None) -> None:
        for name in OLDER:
            (folder / name).mkdir(parents=True)
            (folder / name / "manifest.json").write_text("{}", encoding="utf-8")
        if left is not None:
            (folder / {"unfinished": ".unfinished-x", "headless": "20200103T000000.000000Z"}[left]).mkdir()

    def _assert_kept(self, folder: Path, choice: Choice) -> Path:
        """The snapshot; beside it are as many older ones as are to be kept, and what is none."""
        *older, place = finished(folder)
        assert [each.name for each in older] == list(OLDER[3 - (choice["keep"] or 3) :]), choice
        beside = {each.name for each in folder.iterdir()} - {each.name for each in (*older, place)}
        headless = {"20200103T000000.000000Z"} if choice["left"] == "headless" else set()
        assert {each for each in beside if not each.endswith(".lock")} == headless, choice
        return place


@pytest.mark.pg(16, matrix=False)
@pytest.mark.timeout(1800)
@pytest.mark.soak
def test_any_two_options_hold_the_rows_of_the_point(
    spark: SparkSession, shop: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, rows = Runs(Snapshots(spark, shop, tmp_path / "snapshots"), monkeypatch), covering(OPTIONS, allowed)
    for number, choice in enumerate(rows[: times(SAMPLE, soak=len(rows))]):
        runs.check(number, choice)
    shop.stop()
