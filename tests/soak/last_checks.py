"""What is checked once, at the end: that tables without a key are said to be left out, and Spark's own comparison."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Final

from tests.soak.place import SCHEMA, Place
from tests.support.commands import cdc

_KEYLESS: Final = """
select nspname || '.' || relname from pg_class c join pg_namespace n on n.oid = relnamespace
where nspname = %s and relkind = 'r' and not relispartition
and (relpersistence = 'u'
  or not exists (select from pg_index where indrelid = c.oid and (indisprimary or indisreplident)))
"""
_RECONCILED_IN_S: Final = 1200
MOST_RECONCILED: Final = 12
"""Tables: each takes Spark some seconds, and a busy machine half a minute."""


def not_said(place: Place) -> list[str]:
    """Tables that are left out (docs/exceptions.md) although nothing says so, or that the replica has all the same."""
    live = place.live
    done = cdc("tables", "list", "--json", "-c", live.config, own_jvm=True)
    said = {each["table"] for each in json.loads(done.stdout) if each["refusal"]}
    mirrored = {name for (name,) in live.replica.execute("select topic from cdc.mirrored_table where state = 'exact'")}
    found = [table for (table,) in live.source.execute(_KEYLESS, (SCHEMA,))]
    return [
        *(
            f"{table} is left out, and cdc tables list does not say so\n{done.stdout}"
            for table in found
            if table not in said
        ),
        *(f"{table} is left out, and exact in the replica" for table in found if live.topic(table) in mirrored),
    ]


def can_reconcile() -> bool:
    """Whether Spark is installed; it finds a Java, or brings one."""
    return importlib.util.find_spec("pyspark") is not None


def reconciled(place: Place, tables: list[str], folder: Path) -> tuple[str, list[str]]:
    """``cdc reconcile`` over these tables: what is to be said about it, and what is wrong."""
    options = ("-c", place.live.config, "--report", folder)
    done = cdc("reconcile", *tables, *options, own_jvm=True, timeout_s=_RECONCILED_IN_S)
    lines = (done.stdout + done.stderr).splitlines()
    identical = len({line.split(":")[0] for line in lines if line.startswith("IDENTICAL")})
    if done.returncode or identical != 2 * len(tables):
        return "", [f"cdc reconcile exited with {done.returncode}", *lines]
    return f"cdc reconcile: {len(tables)} tables are IDENTICAL in topic and replica", []
