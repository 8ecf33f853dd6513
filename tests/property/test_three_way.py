"""Random schemas, rows and transactions, with kills in between: source = fold of topic = replica, whatever the seed.

Fixed seeds, other ones for each version, so that a failure is a regression and not bad luck. To replay one or to try
another: ``SEED=7 python -m pytest tests/property/test_three_way.py --pg-majors=17``.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pytest
import yaml

from cdc.lab.demo.place import DemoPlace
from cdc.lab.demo.processes import Daemon, wait_for
from cdc.lab.proof.comparison import TableShape, describe, pinned
from cdc.lab.proof.positions import is_captured
from cdc.lab.stack import Kafka, Postgres, PostgresMajor
from cdc.lab.stack.embedded import free_port
from tests.support.names import unique
from tests.support.oracle import assert_three_way, wait_until_mirrored
from tests.support.servers import Database, fresh_database
from tests.support.soak import times
from tests.support.type_catalogue import CUSTOM_TYPES, VALUE_TYPES, fits_debezium
from tests.support.workload import Workload

ValueTypes: TypeAlias = Mapping[str, Sequence[str]]

_SEEDS_PER_VERSION = 1 if "SEED" in os.environ else times(1, soak=6)
_ROUNDS = times(2, soak=12)
_TRANSACTIONS_PER_ROUND = 80
_IN_AVRO = 18


@pytest.fixture
def replica(postgres: Postgres) -> Iterator[Database]:
    """A second database on the server of ``database``."""
    with fresh_database(postgres) as fresh:
        yield fresh


@pytest.fixture
def place(
    request: pytest.FixtureRequest,
    pg_major: PostgresMajor,
    database: Database,
    replica: Database,
    kafka: Kafka,
    tmp_path: Path,
) -> DemoPlace:
    """Configuration of a bridge and a sink between the two databases, under a name of their own.

    With one of the versions values are in Avro: the versions show the types, and each format has all of them.
    """
    here = _place(database, replica, kafka, tmp_path)
    if pg_major == _IN_AVRO:
        here = replace(here, format="avro", registry_url=request.getfixturevalue("registry").url)
    here.write_config()
    content = yaml.safe_load(here.config.read_text())
    content["topics"]["beyond"] = "text"
    here.config.write_text(yaml.safe_dump(content))
    return here


def _place(database: Database, replica: Database, kafka: Kafka, folder: Path) -> DemoPlace:
    ports = free_port(), free_port()
    return DemoPlace(unique("p_"), database.dsn, replica.dsn, kafka.bootstrap, folder, *ports)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.pg(16, 18)
@pytest.mark.parametrize("nth", range(_SEEDS_PER_VERSION))
def test_source_topic_and_replica_agree(
    pg_major: PostgresMajor, nth: int, database: Database, replica: Database, place: DemoPlace
) -> None:
    seed = int(os.environ.get("SEED", pg_major * _SEEDS_PER_VERSION + nth))
    print(f"SEED={seed} python -m pytest {Path(__file__).name} --pg-majors={pg_major}")  # noqa: T201 - shown on failure
    _see_them_agree(place, database, replica, seed, VALUE_TYPES, _ROUNDS)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.pg(16, matrix=False)
def test_they_agree_in_debeziums_envelope(database: Database, replica: Database, kafka: Kafka, tmp_path: Path) -> None:
    """With the values that Debezium's types hold; a bridge that meets others stops."""
    seed = int(os.environ.get("SEED", "17"))
    place = replace(_place(database, replica, kafka, tmp_path), envelope="debezium")
    place.write_config()
    found = {name: [each for each in texts if fits_debezium(name, each)] for name, texts in VALUE_TYPES.items()}
    fitting = {name: texts for name, texts in found.items() if texts}
    _see_them_agree(place, database, replica, seed, fitting, times(1, soak=12))


def _see_them_agree(
    place: DemoPlace, database: Database, replica: Database, seed: int, value_types: ValueTypes, rounds: int
) -> None:
    """Random tables and transactions, and daemons that are killed, until the three sides are compared."""
    rng = random.Random(seed)
    daemons = [Daemon(command, place.config, place.directory / f"{command}.log") for command in ("run", "sink")]
    if seed % 3:  # otherwise the replica does not know the custom types, and their columns are text there
        replica.execute(CUSTOM_TYPES)
    with database.connect() as source:
        source.execute(CUSTOM_TYPES)
        workload = Workload(source, seed, value_types=value_types)
        with daemons[0], daemons[1]:
            wait_for("slot that is read", lambda: is_captured(source, place.name), daemons, 30)
            wait_until_mirrored(place.source_dsn, place.replica_dsn, place.name, daemons)
            for _ in range(rounds):
                _round(workload, rng, daemons, database.dsn)
                wait_until_mirrored(place.source_dsn, place.replica_dsn, place.name, daemons)
                with pinned(place.source_dsn) as catalog:
                    shapes = [describe(catalog, table.qualified, tuple(table.key)) for table in workload.tables]
                _assert_equal(place, shapes)
            assert [daemon.stop() for daemon in daemons] == [0, 0]
        # An oracle that cannot say no proves nothing.
        workload.bulk(1)
        with pytest.raises(AssertionError, match=r"topic: 1 missing[\s\S]*replica: 1 missing"):
            _assert_equal(place, shapes)


def _assert_equal(place: DemoPlace, shapes: list[TableShape]) -> None:
    assert_three_way(place.source_dsn, place.bootstrap, place.name, shapes, place.replica_dsn, place.fields)


def _round(workload: Workload, rng: random.Random, daemons: list[Daemon], dsn: str) -> None:
    """Random transactions, and one of the daemons killed or stopped somewhere among them."""
    victim, violent = rng.choice(daemons), rng.random() < 0.7
    dies, returns = sorted(rng.sample(range(_TRANSACTIONS_PER_ROUND), 2))
    for number in range(_TRANSACTIONS_PER_ROUND):
        if number == dies:
            if violent:
                victim.kill()
            else:
                assert victim.stop() == 0
        if number == returns:
            victim.start()
        choice = rng.random()
        if choice < 0.03:
            workload.truncate()
        elif choice < 0.10:
            with workload.overlapping(dsn):
                for _ in range(rng.randint(1, 5)):
                    workload.transaction()
        elif choice < 0.12:
            workload.bulk(rng.randint(100, 2000))
        else:
            workload.transaction()
