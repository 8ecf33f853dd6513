"""Options of ``cdc reconcile`` two by two: whatever is combined, the planted damage is found, and nothing else is."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from cdc.contract.jobspec.deployment import SparkSettings
from cdc.contract.jobspec.keys_file import RepairableKey, keys_file, read_keys, write_keys
from cdc.spark.reconcile import table_report
from cdc.spark.report.document import as_json
from cdc.spark.report.model import Report
from tests.support.deployment import Deploy, Deployment
from tests.support.pairs import Choice, covering
from tests.support.reconciling import job_for, reconciled
from tests.support.servers import Database
from tests.support.soak import times
from tests.support.topic_damage import Damage

TABLE = "public.client"
ROWS = 200
LISTED: Final = (7, 10, 20, 50, 120, 900)
"""Keys of a run that looks at no others."""

SAMPLE: Final = 1
"""So many combinations in an ordinary run, all of them in ``make soak``."""

OPTIONS: Final[Mapping[str, tuple[Any, ...]]] = {
    "where": (None, "id > 100 OR name = '?'"),
    "columns": (None, ("city",), ("id", "name")),
    "passes": (1, 3),
    "state": (False, True),
    "replica": (False, True),
    "keys": (False, True),
    "keys_to": (False, True),
    "redact": (False, True),
    "resume": (False, True),
    "rounds": (0, 3),
    "samples": (0, 10),
    "connections": (1, 4),
}
TOPIC: Final = {
    7: ("value_mismatch", "city"),
    8: ("value_mismatch", "name"),
    10: ("missing_in_topic", ""),
    120: ("value_mismatch", "city"),
    121: ("value_mismatch", "name"),
    900: ("extra_in_topic", ""),
}
"""Damage in the topic: by key its class, and the column that it is in."""

REPLICA: Final = {
    20: ("value_mismatch", "city"),
    130: ("value_mismatch", "name"),
    21: ("missing_in_replica", ""),
    700: ("extra_in_replica", ""),
}
"""Damage in the replica."""

WITHOUT_ROW: Final = ("extra_in_topic", "missing_in_replica")
"""Classes of keys of which the database has no row, so that no condition can leave them out."""


def allowed(choice: Choice) -> bool:
    """What the command, or the job, takes together."""
    return not (choice.get("state") and choice.get("passes", 1) > 1) and not (
        choice.get("redact") and choice.get("resume")
    )


def expected(choice: Choice, damage: Mapping[int, tuple[str, str]]) -> dict[str, set[int]]:
    """By class the keys that must be found, and no others."""
    found: dict[str, set[int]] = {}
    for key, (difference, column) in damage.items():
        in_keys = not choice["keys"] or key in LISTED
        in_where = choice["where"] is None or key > 100 or difference in WITHOUT_ROW
        in_columns = choice["columns"] is None or not column or column in choice["columns"]
        if in_keys and in_where and in_columns:
            found.setdefault(difference, set()).add(key)
    return found


@pytest.fixture
def damaged(database: Database, deploy: Deploy) -> Deployment:
    """Bridge and sink at rest, with damage in the topic and in the replica."""
    database.execute("CREATE TABLE client (id int PRIMARY KEY, name text, city text)")
    database.execute(f"INSERT INTO client SELECT n, 'name ' || n, 'secret-city' FROM generate_series(1, {ROWS}) n")
    deployment = deploy(topics={"partitions": 2})
    deployment.start()
    deployment.wait_backfilled()
    deployment.wait_mirrored()
    records = {each.key: each for each in deployment.records(TABLE)}
    damage = Damage(deployment)
    for number, (difference, column) in TOPIC.items():
        record = records[b'{"id":%d}' % (number if number <= ROWS else 1)]
        assert record.value is not None
        value = {
            "city": record.value.replace(b"secret-city", b"secret-town"),
            "name": record.value.replace(b"name ", b"nome "),
        }
        extra = record.value.replace(b'"id":1,', b'"id":%d,' % number)
        written = None if difference == "missing_in_topic" else value.get(column, extra)
        damage.write(TABLE, b'{"id":%d}' % number, written, header=record.header)
    damage.done()
    database.execute(f"INSERT INTO client VALUES ({ROWS + 1}, 'so that the sink', 'cuts')")
    deployment.wait_mirrored()
    deployment.replica.execute("UPDATE client SET city = 'secret-village' WHERE id = 20")
    deployment.replica.execute("UPDATE client SET name = 'nobody' WHERE id = 130")
    deployment.replica.execute("DELETE FROM client WHERE id = 21")
    deployment.replica.execute("INSERT INTO client VALUES (700, 'made', 'up')")
    return deployment


class Runs:
    """Runs of one deployment in one session, and what each must find."""

    def __init__(self, deployment: Deployment, folder: Path, spark: SparkSession, settings: SparkSettings) -> None:
        self._deployment = deployment
        self._folder = folder
        self._spark = spark
        self._settings = settings
        self._keys = folder / "listed.jsonl"
        write_keys(self._keys, [RepairableKey(b'{"id":%d}' % each, None) for each in LISTED])

    def check(self, number: int, choice: Choice, monkeypatch: pytest.MonkeyPatch) -> None:
        """One combination."""
        place = self._folder / f"run-{number}"
        keys_to = self._folder / f"keys-{number}"
        keys_to.mkdir()
        options: dict[str, Any] = {name: choice[name] for name in ("where", "passes", "redact", "rounds", "samples")}
        options |= {
            "connections": choice["connections"],
            "columns": {} if choice["columns"] is None else {TABLE: choice["columns"]},
            "state": str(self._folder / "state") if choice["state"] else None,
            "keys": {TABLE: str(self._keys)} if choice["keys"] else {},
            "keys_to": str(keys_to) if choice["keys_to"] else None,
        }
        if not choice["replica"]:
            options["replica"] = None
        if choice["resume"]:
            with monkeypatch.context() as patched:
                patched.setattr(table_report, "keep_keys", self._breaks)
                assert self._run(place, options).exit_code == 2, choice
        report = self._run(place, options | {"resume": choice["resume"]})
        self._assert_found(report, choice, place)
        if choice["keys_to"]:
            assert self._handed_on(keys_to) == self._all(choice), choice

    def _run(self, place: Path, options: dict[str, Any]) -> Report:
        return reconciled(job_for(self._deployment, place, self._settings, **options), self._spark)

    def _breaks(self, _job: object, _table: object, sides: Sequence[tuple[object, str]]) -> str:
        if all(found is None for found, _ in sides):  # what is left to report when all else broke
            return ""
        raise OSError(28, "No space left on device")

    def _all(self, choice: Choice) -> set[int]:
        sides = [TOPIC, REPLICA] if choice["replica"] else [TOPIC]
        return {key for side in sides for keys in expected(choice, side).values() for key in keys}

    def _handed_on(self, folder: Path) -> set[int]:
        listed = read_keys(Path(keys_file(str(folder), self._deployment.topic(TABLE))))
        return {json.loads(each.key)["id"] for each in listed}

    def _assert_found(self, report: Report, choice: Choice, place: Path) -> None:
        (table,) = report.tables
        assert (report.exit_code, table.reason) == (1, ""), (choice, table.reason)
        in_topic = {name: len(keys) for name, keys in expected(choice, TOPIC).items()}
        counts = table.counts.model_dump()
        assert {name: counts[name] for name in TOPIC_CLASSES if counts[name]} == in_topic, (choice, table.samples)
        assert counts["in_flight"] == 0, choice
        if choice["replica"]:
            assert table.replica is not None, choice
            in_replica = {name: len(keys) for name, keys in expected(choice, REPLICA).items()}
            counts = table.replica.model_dump()
            assert {name: counts[name] for name in REPLICA_CLASSES if counts[name]} == in_replica, (
                choice,
                table.samples,
            )
        if choice["samples"] and not choice["redact"]:
            assert {json.loads(each.key)["id"] for each in table.samples} == self._all(choice), choice
        assert bool(table.samples) is bool(choice["samples"]), choice
        assert not (place / "work").exists(), choice
        if choice["redact"]:
            self._assert_hidden(report, place)
        else:
            differing = self._spark.read.parquet(table.keys_path)
            assert {json.loads(each["key"])["id"] for each in differing.select("key").collect()} == self._all(choice)

    def _assert_hidden(self, report: Report, place: Path) -> None:
        hidden = [b"secret-", b'{"id":120}', base64.b64encode(b'{"id":120}')]
        files = [each for each in place.rglob("*") if each.is_file()]
        assert not [each for each in files if any(word in each.read_bytes() for word in hidden)]
        assert "secret-" not in as_json(report)


TOPIC_CLASSES: Final = ("missing_in_topic", "extra_in_topic", "value_mismatch")
REPLICA_CLASSES: Final = ("missing_in_replica", "extra_in_replica", "value_mismatch")


@pytest.mark.pg(16, matrix=False)
@pytest.mark.timeout(1800)
@pytest.mark.soak
def test_any_two_options_find_the_planted_damage(
    damaged: Deployment, tmp_path: Path, spark: SparkSession, spark_settings: SparkSettings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    runs = Runs(damaged, tmp_path, spark, spark_settings)
    rows = covering(OPTIONS, allowed)
    for number, choice in enumerate(rows[: times(SAMPLE, soak=len(rows))]):
        runs.check(number, choice, monkeypatch)
    damaged.stop()
