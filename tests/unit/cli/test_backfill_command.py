"""What ``cdc backfill`` refuses before anything is asked."""

from __future__ import annotations

from dataclasses import replace

import pytest
import typer
from typer.testing import CliRunner

from cdc.base.errors import ConfigError
from cdc.bridge.asking.allowed import backfills_to_change
from cdc.cli.backfill_command import backfill
from cdc.contract.record import BackfillState
from cdc.kafka.replay.backfills import Published, StoredBackfill
from tests.support.topic_writer import FIRST_BACKFILL


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--where", "id = 1"], "--where needs a table"),
        (["public.items", "--where", "id = 1", "--sweep"], "--sweep with --where"),
        (["--list", "--cancel"], "only one of --list, --pause, --resume and --cancel"),
        (["--pause", "--rate", "5"], "are for a new backfill only"),
        (["--list", "--sweep"], "are for a new backfill only"),
    ],
)
def test_contradictions(arguments: list[str], words: str) -> None:
    app = typer.Typer()
    app.command()(backfill)
    error = CliRunner().invoke(app, arguments).exception
    assert isinstance(error, ConfigError)
    assert words in error.message
    assert error.remedy


def known(**states: BackfillState) -> Published:
    backfills = {
        f"public.{name}": replace(FIRST_BACKFILL, table=f"public.{name}", state=state) for name, state in states.items()
    }
    return Published(None, {table: StoredBackfill(each, 0) for table, each in backfills.items()})


def test_commands_mean_the_backfills_that_they_can_change() -> None:
    stored = known(a="running", b="paused", c="done")
    assert set(backfills_to_change(stored, "pause", [])) == {"public.a"}
    assert set(backfills_to_change(stored, "resume", ["public.b"])) == {"public.b"}
    assert set(backfills_to_change(stored, "cancel", [])) == {"public.a", "public.b"}


def test_nothing_to_change() -> None:
    stored = known(a="running", b="paused", c="done")
    with pytest.raises(ConfigError, match=r"nothing to cancel: no backfill of public\.c is") as refusal:
        backfills_to_change(stored, "cancel", ["public.a", "public.c"])
    assert refusal.value.remedy == "name some of public.a, public.b"
    with pytest.raises(ConfigError, match="nothing to pause: no backfill is waiting or running"):
        backfills_to_change(known(c="done"), "pause", [])
