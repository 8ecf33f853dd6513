"""Printed commands go into the deployment that they speak of."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cdc.base.printed_commands import READING, for_file
from cdc.cli.commands import COMMANDS


@pytest.mark.parametrize(
    ("remedy", "whole"),
    [
        ("start the bridge: cdc run", "start the bridge: cdc run -c 'my shop.yaml'"),
        ("cdc backfill --sweep public.t", "cdc backfill -c 'my shop.yaml' --sweep public.t"),
        ("cdc grants source | psql shop", "cdc grants source -c 'my shop.yaml' | psql shop"),
        ("cdc status -c other.yaml", "cdc status -c other.yaml"),
        ("cdc backfill public.t -c other.yaml", "cdc backfill public.t -c other.yaml"),
        ("stop its reader (cdc run) first", "stop its reader (cdc run -c 'my shop.yaml') first"),
        ("cdc tries again by itself", "cdc tries again by itself"),
        ("SELECT 1;", "SELECT 1;"),
        ("ps -eo pid,stat,args | grep 'cdc run'", "ps -eo pid,stat,args | grep 'cdc run'"),
    ],
)
def test_a_command_names_the_file(remedy: str, whole: str) -> None:
    assert for_file(remedy, Path("my shop.yaml")) == whole
    assert for_file(remedy, None) == remedy


def test_every_command_that_reads_a_file_is_known() -> None:
    inner = {"config": "show", "grants": "source", "quarantine": "list", "tables": "list", "topics": "lint"}
    unknown = {each for each in COMMANDS if not re.fullmatch(READING, f"{each} {inner.get(each, '')}".strip())}
    assert unknown == {"demo", "init", "learn", "stack"}
