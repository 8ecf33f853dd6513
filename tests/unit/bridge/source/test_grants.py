"""The SQL that ``cdc grants source`` prints is pasted as a superuser: no name of the catalog may become a command."""

from __future__ import annotations

from cdc.base.pgroles import role_lines
from cdc.bridge.source.grants import Capture, capture_grants
from cdc.bridge.source.table import Index, TableInfo
from cdc.contract.change import ReplicaIdentity

COMMAND = "ALTER ROLE mallory SUPERUSER;"
NAMES = [f"x\n{COMMAND} --", f"x\r{COMMAND} --", f'"\n{COMMAND} --']


def table(namespace: str, name: str, key: str = "id") -> TableInfo:
    return TableInfo(
        namespace=namespace,
        name=name,
        kind="r",
        replica_identity=ReplicaIdentity.DEFAULT,
        key=(key,) if key else (),
        key_source="primary key" if key else "none",
        toastable=(),
        estimated_rows=0,
        columns=("id",),
        primary_key=Index("pk", (key,), immediate=True) if key else None,
        unique_indexes=(),
        key_is_enforced=True,
        leaves=(),
        unlike_partitions=(),
        configured_key=(),
        oid=1,
    )


def outside_of_quotes(script: str) -> str:
    """What psql sees of the script but for comments and what is in quotes."""
    seen, place = [], 0
    while place < len(script):
        if script.startswith("--", place):
            while place < len(script) and script[place] not in "\r\n":
                place += 1
        elif (quote := script[place]) in "\"'":
            place = script.index(quote, place + 1) + 1
        else:
            seen.append(script[place])
            place += 1
    return "".join(seen)


def test_no_name_becomes_a_command() -> None:
    for name in NAMES:
        tables = [table(name, "orders"), table("public", name), table("public", f"{name}2", key="")]
        for state_name in ("cdc_shop", name):
            lines = capture_grants(
                Capture(
                    role=name,
                    database=name,
                    tables=tables,
                    grows=True,
                    secured=[f"public.{name}"],
                    publication=state_name,
                    mode="filtered",
                    state=None,
                )
            )
            seen = outside_of_quotes("\n".join(lines))
            assert "GRANT SELECT ON" in seen
            assert "mallory" not in seen
        assert "mallory" not in outside_of_quotes("\n".join(role_lines(name, "LOGIN")))
