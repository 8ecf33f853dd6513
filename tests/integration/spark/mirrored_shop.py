"""Three tables that one mirror follows, and transactions that change all of them and leave their number in each."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import deltalake

from cdc.base.lsn import LSN
from cdc.contract.jobspec.mirror import MirrorJob
from tests.integration.spark.lake_tables import (
    NamedRow,
    cuts_in,
    iceberg_table,
    named_in,
    named_of,
    rows_in,
    texts_in,
    texts_of,
)
from tests.support.deployment import Deployment
from tests.support.servers import Database
from tests.support.spark_jvm import SHARED

TABLES: Final = ("public.client", "public.entry", "public.Größe")
SCHEMA: Final = """
CREATE TABLE client (
  id int PRIMARY KEY, name text, amount numeric(12,2), free numeric, seen timestamptz, born date, doc jsonb);
CREATE TABLE "Größe" (a int, "b, c" text, v bool, PRIMARY KEY (a, "b, c"));
CREATE TABLE entry (id bigint PRIMARY KEY, client int, amount int)
"""
ROWS: Final = """
INSERT INTO client SELECT n, n::text, n * 1.1, n / 7.0, '2020-02-02 20:20:20+02', '1969-12-31', '{"a": [1.50, null]}'
  FROM generate_series(0, 30) n;
INSERT INTO "Größe" SELECT n, n::text, n % 2 = 0 FROM generate_series(0, 30) n;
INSERT INTO entry SELECT n, n % 30, CASE WHEN n > 0 THEN n ELSE 0 END FROM generate_series(0, 100) n
"""
_CHANGE: Final = """
BEGIN;
UPDATE client SET name = '{0}', seen = 'infinity' WHERE id IN (0, {0} % 30 + 1);
UPDATE "Größe" SET "b, c" = '{0}' WHERE a = 0;
DELETE FROM "Größe" WHERE a = {0} % 30 + 1;
INSERT INTO "Größe" VALUES ({0} % 30 + 2, 'x{0}', NULL);
UPDATE entry SET amount = {0} WHERE id = 0;
DELETE FROM entry WHERE id = {0} % 100 + 1;
INSERT INTO entry VALUES ({0} + 1000, {0}, {0});
{1}
COMMIT
"""
_ALTERED: Final = (
    "ALTER TABLE client ADD more int; UPDATE client SET more = {0} WHERE id < 9;",
    "ALTER TABLE entry ALTER amount TYPE bigint; UPDATE entry SET amount = {0} WHERE id = 0;",
    "TRUNCATE entry; INSERT INTO entry SELECT n, n, {0} FROM generate_series(0, 100) n;",
    "ALTER TABLE client RENAME more TO less; UPDATE client SET less = id;",
    'ALTER TABLE "Größe" ADD at timestamp; UPDATE "Größe" SET at = \'-infinity\' WHERE a < 9;',
    "ALTER TABLE client ALTER amount TYPE numeric; UPDATE client SET amount = 1e30 WHERE id < 9;",
)
"""What a transaction may do besides, in turn."""
_ALTERED_LATER: Final = (
    "TRUNCATE entry; INSERT INTO entry SELECT n, n, {0} FROM generate_series(0, 100) n;",
    'TRUNCATE "Größe"; INSERT INTO "Größe" SELECT n, \'{0}\', true FROM generate_series(0, 30) n;',
    "TRUNCATE client, entry; INSERT INTO client (id, name) SELECT n, '{0}' FROM generate_series(0, 30) n;"
    "INSERT INTO entry VALUES (0, 0, {0});",
    'ALTER TABLE "Größe" ADD IF NOT EXISTS c{1} int; UPDATE "Größe" SET c{1} = {0};',
)
"""What it may do when all of these were done, again and again."""


@dataclass
class Changes:
    """Transactions, numbered from 1, and where the log was after each.

    Every ``alter_every``-th one alters or truncates a table as well; then all rows after each are kept.
    """

    database: Database
    alter_every: int = 0
    after: list[LSN] = field(default_factory=list)
    rows: list[dict[str, list[NamedRow]]] = field(default_factory=list)
    _seen: dict[NamedRow, NamedRow] = field(default_factory=dict)

    def make(self) -> None:
        """The next one."""
        number, turn, also = len(self.after) + 1, 0, ""
        if self.alter_every and number % self.alter_every == 0:
            turn = number // self.alter_every - 1
            later = turn - len(_ALTERED)
            also = _ALTERED[turn] if later < 0 else _ALTERED_LATER[later % len(_ALTERED_LATER)]
        self.database.execute(_CHANGE.format(number, also.format(number, turn % 7)))
        if self.alter_every:
            self.rows.append({each: self._kept(each) for each in TABLES})
        ((text,),) = self.database.execute("SELECT pg_current_wal_insert_lsn()::text")
        self.after.append(LSN.parse(text))

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """One after the other, until the end of the block."""
        stop = threading.Event()

        def make() -> None:
            while not stop.wait(0.5 if self.alter_every else 0.05):
                self.make()

        thread = threading.Thread(target=make)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _kept(self, table: str) -> list[NamedRow]:
        schema, name = table.split(".")
        return [self._seen.setdefault(row, row) for row in named_of(self.database, f'{schema}."{name}"')]

    def before(self, lsn: LSN) -> set[int]:
        """The numbers of which one is that of the last transaction before this position."""
        surely = sum(each <= lsn for each in self.after)
        return {surely, surely + 1}


def assert_equal(deployment: Deployment, job: MirrorJob) -> None:
    """Every table by full rows, at its newest version and at that of the last cut."""
    for row in last_cut(job):
        schema, name = row["table"].split(".")
        wanted = texts_of(deployment.source, f'{schema}."{name}"')
        folder = Path(job.path) / row["folder"]
        assert texts_in(folder) == wanted, row
        assert texts_in(folder, row["version"]) == wanted, row
        assert row["is_exact"], row


def last_cut(job: MirrorJob) -> list[dict[str, Any]]:
    """One row per table."""
    cuts = cuts_in(job)
    rows = [row for row in cuts if row["cut"] == cuts[-1]["cut"]]
    assert sorted(row["table"] for row in rows) == sorted(TABLES)
    return rows


def assert_cuts(job: MirrorJob, changes: Changes) -> int:
    """At each exact cut all tables show one transaction, the last before its LSN; returns how many cuts are exact.

    If the changes kept the rows, each table has exactly those of that transaction.
    """
    cuts: dict[int, list[dict[str, Any]]] = {}
    for row in cuts_in(job):
        cuts.setdefault(row["cut"], []).append(row)
    exact = [rows for rows in cuts.values() if all(row["is_exact"] for row in rows)]
    for rows in exact:
        numbers = numbers_at(job, rows)
        assert len(numbers) == 1, (numbers, rows)
        assert numbers <= changes.before(LSN.parse(rows[0]["lsn"])), (numbers, rows)
        (number,) = numbers
        for row in rows if changes.rows and number else ():
            found = named_in(Path(job.path) / row["folder"], row["version"])
            assert found == changes.rows[number - 1][row["table"]], (number, row)
    return len(exact)


def numbers_at(job: MirrorJob, cut: Sequence[dict[str, Any]]) -> set[int]:
    """The numbers of the transactions that the tables show at a cut; one, if it is exact."""
    return {_number(Path(job.path), row) for row in cut}


def _number(lake: Path, row: dict[str, Any]) -> int:
    rows = rows_in(lake / row["folder"], row["version"])
    column = {"public.client": "name", "public.Größe": "b, c", "public.entry": "amount"}[row["table"]]
    (found,) = (int(each[column]) for each in rows if each.get("id", each.get("a")) == 0)
    return found


def batches(job: MirrorJob) -> int:
    """How many batches the tables have, each of which must be there once."""
    count = 0
    for table in job.tables:
        folder = Path(job.path) / table.topic
        if job.format == "iceberg":
            count += _snapshots(folder)
            continue
        if not deltalake.DeltaTable.is_deltatable(str(folder)):
            continue
        numbers = [
            json.loads(commit["userMetadata"])["position"]["batch"]
            for commit in deltalake.DeltaTable(folder).history()
            if commit["operation"] in ("MERGE", "WRITE") and commit["operationParameters"].get("mode") != "Overwrite"
        ]
        assert numbers == sorted(set(numbers), reverse=True), table.topic
        count += len(numbers)
    return count


def _snapshots(folder: Path) -> int:
    with iceberg_table(folder) as table:
        told = [json.loads(each.summary.additional_properties["cdc"]) for each in table.snapshots() if each.summary]
    numbers = [each["position"]["batch"] for each in told]
    assert numbers == sorted(numbers), "no batch comes after a later one"
    return len(set(numbers) - {-1})


@contextmanager
def mirror_process(
    job: MirrorJob, folder: Path, point: str = "", *, is_warm: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """The job in a process of its own, which dies at a crash point; at the end of the block its JVM is killed, too.

    With ``is_warm`` it uses the JVM that commands of tests share. That one does nothing while Python is at a point.
    """
    document = folder / "job.json"
    document.write_text(job.model_dump_json(), encoding="utf-8")
    command = [sys.executable, "-m", "cdc.spark", "mirror", str(document)]
    environment = SHARED.environment() if is_warm else dict(os.environ)
    if point:
        environment["CDC_CRASHPOINT"] = point
    with (folder / "mirror.log").open("ab") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
