"""Commands, and waiting for a table that is published again beside the stream."""

from __future__ import annotations

import psycopg
from typer.testing import CliRunner

from cdc.base.errors import CdcError
from cdc.cli.cli import app
from cdc.lab.proof.comparison import TableShape
from tests.support.deployment import Deployment
from tests.support.waiting import eventually


def wait_equal(live: Deployment, *tables: TableShape | str) -> None:
    """Wait until topics and replica hold the source's rows, which stand still."""

    def equal() -> bool:
        try:
            live.assert_equal(*tables)
        except (AssertionError, CdcError, psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn):
            return False
        return True

    try:
        eventually(equal, 30)
    except AssertionError:
        live.assert_equal(*tables)
        raise


def cdc(live: Deployment, *arguments: str) -> str:
    """What a command prints, and what it fails with."""
    result = CliRunner().invoke(app, [*arguments, "-c", str(live.config)])
    if result.exception is None:
        return result.output
    assert isinstance(result.exception, CdcError), result.exception
    return str(result.exception)
