"""The profile of statements of many kinds from several sessions, in the spirit of PostgreSQL's regression tests.

They are in regression.sql. Where docs/exceptions.md says that a command leaves rows as they were, the same transaction
changes these rows: so nothing that is left may differ.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tests.soak.profile import Connection

EXCHANGED: Final = "reg_churn"
"""The names of tables that come and go begin so."""
_CHURNED: Final = 6
_TABLES: Final = ("reg_plain", "reg_large", "reg_base", "reg_parts")
_KEYS: Final = 400
_COUNTED: Final = ("INSERT", "UPDATE", "DELETE", "MERGE", "COPY")
_HEADING: Final = re.compile(
    r"-- (?P<kind>rows|definitions), (?P<weight>[0-9.]+)(, since (?P<since>\d+))?: (?P<name>.+)"
)
_DEFINITIONS: Final = 0.05
"""The share of transactions that define something: each locks a table that the others want."""


class Deed(NamedTuple):
    """What one transaction may do.

    Attributes:
        kind: ``rows`` or ``definitions``.
        weight: how often, beside the others of its kind.
        since: the first version of PostgreSQL that knows it.
    """

    kind: str
    weight: float
    since: int
    statements: list[str]


def _read() -> tuple[list[str], dict[str, Deed]]:
    """What makes the tables, and the deeds by name."""
    _, setup, *parts = re.split(r"^(?=-- (?:setup|rows|definitions)\b)", _FILE.read_text(encoding="utf-8"), flags=re.M)
    deeds = {}
    for part in parts:
        heading, _, text = part.partition("\n")
        found = _HEADING.fullmatch(heading)
        assert found, heading
        deeds[found["name"]] = Deed(found["kind"], float(found["weight"]), int(found["since"] or 0), _statements(text))
    return _statements(setup.partition("\n")[2]), deeds


def _statements(text: str) -> list[str]:
    return [each for each in map(str.strip, text.split(";\n")) if each]


_FILE: Final = Path(__file__).with_suffix(".sql")
_SETUP, DEEDS = _read()


class Regression:
    """Rows and definitions change at the same time. What fails because of another session is refused, as for a user."""

    def create(self, connection: Connection) -> None:
        for statement in _SETUP:
            connection.execute(statement.encode())

    def change(self, connection: Connection, rng: random.Random) -> int:
        kind = "definitions" if rng.random() < _DEFINITIONS else "rows"
        possible = [deed for deed in known(connection).values() if deed.kind == kind]
        return do(rng.choices(possible, [each.weight for each in possible])[0], connection, rng)


def known(connection: Connection) -> Mapping[str, Deed]:
    """The deeds that this server knows, by name."""
    major = connection.info.server_version // 10_000
    return {name: deed for name, deed in DEEDS.items() if deed.since <= major}


def do(deed: Deed, connection: Connection, rng: random.Random) -> int:
    """Do it in a transaction that somebody else ends; returns how many rows it changed."""
    key = rng.randrange(1, _KEYS)
    churned = [f"{EXCHANGED}_{number}" for number in rng.sample(range(_CHURNED), 2)]
    values = {
        "{k}": key,
        "{m}": key + rng.randrange(12),
        "{o}": rng.randrange(1, _KEYS),
        "{c}": rng.randrange(1, 5),
        "{r}": 1000 + 50 * rng.randrange(4),
        "{t}": f"soak.{rng.choice(_TABLES)}",
        "{u}": f"soak.{churned[0]}",
        "{v}": churned[0],
        "{w}": churned[1],
        "{p}": _through_the_root(connection),
    }
    rows = 0
    for statement in deed.statements:
        query = re.sub(r"\{[a-z]\}", lambda found: str(values[found[0]]), statement)
        done = connection.execute(query.encode())
        rows += done.rowcount if (done.statusmessage or "").startswith(_COUNTED) else 0
    return rows


def _through_the_root(connection: Connection) -> str:
    """What PostgreSQL 14 has to be told when partitions come and go (docs/exceptions.md)."""
    if connection.info.server_version >= 150_000:
        return "select"
    ((name,),) = connection.execute("select pubname from pg_publication")
    return f'alter publication "{name}" set (publish_via_partition_root = true)'
