"""Random schemas, rows and transactions, with kills in between: source = fold of topic = replica, whatever the seed.

Fixed seeds, other ones for each version and format, so that a failure is a regression and not bad luck. To replay one
or to try another: ``SEED=7 python -m pytest tests/property/test_three_way.py --pg-majors=17``.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from cdc.contract.record import FormatName
from cdc.lab.demo.place import DemoPlace
from cdc.lab.demo.processes import Daemon, wait_for
from cdc.lab.proof.comparison import TableShape, describe, pinned
from cdc.lab.proof.positions import is_captured
from cdc.lab.stack import Kafka, Postgres, PostgresMajor, RegistryServer
from cdc.lab.stack.embedded import free_port
from tests.support.names import unique
from tests.support.oracle import assert_three_way, wait_until_mirrored
from tests.support.servers import Database, fresh_database
from tests.support.soak import times
from tests.support.type_catalogue import CUSTOM_TYPES, VALUE_TYPES, fits_debezium
from tests.support.workload import Workload

_SEEDS_PER_VERSION = 1 if "SEED" in os.environ else times(1, soak=6)
_ROUNDS = times(2, soak=12)
_TRANSACTIONS_PER_ROUND = 80
_ROUNDS_OF_A_FORMAT = times(1, soak=12)
_FORMATS: tuple[FormatName, ...] = ("avro", "protobuf", "json-schema")


@pytest.fixture
def replica(postgres: Postgres) -> Iterator[Database]:
    """A second database on the server of ``database``."""
    with fresh_database(postgres) as fresh:
        yield fresh


@pytest.fixture
def place(database: Database, replica: Database, kafka: Kafka, tmp_path: Path) -> DemoPlace:
    """A bridge and a sink between the two databases, under a name of their own."""
    return DemoPlace(
        unique("p_"),
        database.dsn,
        replica.dsn,
        kafka.bootstrap,
        tmp_path,
        bridge_port=free_port(),
        sink_port=free_port(),
    )


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.pg(16)
@pytest.mark.parametrize("nth", range(_SEEDS_PER_VERSION))
def test_source_topic_and_replica_agree(
    pg_major: PostgresMajor, nth: int, database: Database, replica: Database, place: DemoPlace
) -> None:
    _live_beyond(_seed(pg_major, nth), _ROUNDS, database, replica, place)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.pg(18, matrix=False)
@pytest.mark.parametrize("nth", range(_SEEDS_PER_VERSION))
@pytest.mark.parametrize("form", _FORMATS)
def test_they_agree_in_each_format(
    form: FormatName,
    pg_major: PostgresMajor,
    nth: int,
    database: Database,
    replica: Database,
    place: DemoPlace,
    registry: RegistryServer,
) -> None:
    seed = _seed(pg_major, nth * len(_FORMATS) + _FORMATS.index(form))
    in_format = replace(place, format=form, registry_url=registry.url)
    _live_beyond(seed, _ROUNDS_OF_A_FORMAT, database, replica, in_format)


def _seed(pg_major: PostgresMajor, nth: int) -> int:
    seed = int(os.environ.get("SEED", pg_major * _SEEDS_PER_VERSION + nth))
    print(f"SEED={seed} python -m pytest {Path(__file__).name} --pg-majors={pg_major}")  # noqa: T201 - shown on failure
    return seed


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.pg(16, matrix=False)
@pytest.mark.parametrize("form", ["json", pytest.param("avro", marks=pytest.mark.long)])
def test_they_agree_in_debeziums_envelope(
    form: FormatName, database: Database, replica: Database, place: DemoPlace, registry: RegistryServer
) -> None:
    """With the values that Debezium's types hold; a bridge that meets others stops."""
    found = {name: [each for each in texts if fits_debezium(name, each)] for name, texts in VALUE_TYPES.items()}
    fitting = {name: texts for name, texts in found.items() if texts}
    url = None if form == "json" else registry.url
    in_envelope = replace(place, envelope="debezium", format=form, registry_url=url)
    in_envelope.write_config()
    _live(_seed(16, 1), _ROUNDS_OF_A_FORMAT, database, replica, in_envelope, fitting)


def _live_beyond(seed: int, rounds: int, database: Database, replica: Database, place: DemoPlace) -> None:
    """Live with values of all kinds; those beyond the types of a format are texts."""
    place.write_config()
    content = yaml.safe_load(place.config.read_text())
    content["topics"]["beyond"] = "text"
    place.config.write_text(yaml.safe_dump(content))
    _live(seed, rounds, database, replica, place, VALUE_TYPES)


def _live(
    seed: int,
    rounds: int,
    database: Database,
    replica: Database,
    place: DemoPlace,
    value_types: Mapping[str, Sequence[str]],
) -> None:
    """Write, kill and compare."""
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
