"""``cdc check`` under test: a configuration in short, findings by subject, and remedies carried out to the letter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg

from cdc.base.config import Config
from cdc.bridge.source.preflight import Finding
from cdc.ops.status.checks import check_source


def config(dsn: str, *, name: str = "shop", kafka: str = "127.0.0.1:1", **sections: Any) -> Config:
    """A configuration for ``dsn``; keyword ``source`` adds to its section, others are sections of their own."""
    source = {"dsn": dsn, **sections.pop("source", {})}
    return Config.model_validate({"name": name, "source": source, "kafka": {"bootstrap": kafka}, **sections})


def findings(dsn: str, **source: Any) -> list[Finding]:
    """What ``cdc check`` finds about the source."""
    return check_source(config(dsn, source=source))[0]


def troubles(found: Sequence[Finding], level: str = "FAIL") -> Mapping[str, Finding]:
    """Findings of one level by subject; two about one subject would hide each other, so that is an error."""
    chosen = [each for each in found if each.level == level]
    assert len({each.subject for each in chosen}) == len(chosen), chosen
    return {each.subject: each for each in chosen}


def mend(superuser: psycopg.Connection[Any], finding: Finding) -> None:
    """Do what the remedy says, as a person would: paste it, a statement at a time."""
    for statement in finding.remedy.partition("--")[0].split(";"):
        if statement.strip():
            superuser.execute(statement.encode())
    if "pg_reload_conf" in finding.remedy:
        # The postmaster tells its processes of new settings at its leisure, but before it accepts another connection:
        # a checkpoint asked for sooner may still go by the old ones.
        psycopg.connect(superuser.info.dsn, password=superuser.info.password).close()
