"""The oracle of every end-to-end test: source = folded topic = replica at one position, and no record went back."""

from __future__ import annotations

from collections.abc import Iterable

import psycopg

from cdc.base.lsn import LSN, ZERO
from cdc.lab.demo.processes import Daemon, wait_for
from cdc.lab.proof.comparison import TableShape, TableVerdict, prove
from cdc.lab.proof.positions import fence, recorded_cut
from cdc.lab.proof.topic_side import ReadFields


def wait_until_mirrored(
    source_dsn: str, replica_dsn: str, name: str, daemons: Iterable[Daemon] = (), timeout_s: float = 60
) -> LSN:
    """Return the replica's cut once it holds everything that is committed in the source now.

    Raises:
        StackError: it did not come that far, or a daemon ended by itself; carries the ends of their logs.
    """
    with (
        psycopg.connect(source_dsn, autocommit=True) as source,
        psycopg.connect(replica_dsn, autocommit=True) as replica,
    ):
        end = fence(source)
        wait_for(
            f"cut at {end} in the replica",
            lambda: (recorded_cut(replica, name) or ZERO) >= end,
            list(daemons),
            timeout_s,
        )
        return recorded_cut(replica, name) or ZERO


def assert_three_way(
    source_dsn: str,
    kafka: str,
    name: str,
    tables: Iterable[TableShape | str],
    replica_dsn: str,
    fields: ReadFields | None = None,
) -> list[TableVerdict]:
    """Compare all tables, which stand still, row by row; what differs is in the assertion's message.

    Args:
        source_dsn: the captured database.
        kafka: bootstrap of the cluster with its topics.
        name: its configured name.
        tables: ``schema.table`` each, or shapes with an explicit key.
        replica_dsn: the mirrored database, with the source's table names.
        fields: reads values in Avro; None if all are JSON.
    """
    verdicts = prove(
        source_dsn=source_dsn, bootstrap=kafka, name=name, replica_dsn=replica_dsn, shapes=tables, fields=fields
    )
    findings = [finding for verdict in verdicts for finding in verdict.findings()]
    assert not findings, "\n".join(findings)
    return verdicts
