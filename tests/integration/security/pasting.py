"""Commands that the program prints, carried out as a person would: pasted."""

from __future__ import annotations

import argparse
import re
import shlex
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType
from typer.testing import CliRunner, Result

from cdc.base.config import load
from cdc.base.errors import CdcError
from cdc.bridge.run import run_bridge
from cdc.cli.cli import app
from cdc.sink.apply.run import run_sink

_REFUSAL_TIMEOUT_S: Final = 30.0
_RESOURCES: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
}


def cdc(*words: object) -> Result:
    """Run a ``cdc`` command in this process."""
    return CliRunner().invoke(app, [str(word) for word in words])


def refused_bridge(path: Path) -> CdcError:
    """What ends ``cdc run`` with this configuration, run in this process: a quarter of the time."""
    config = load(path, {})
    return _refused(lambda stop: run_bridge(config, stop, threading.Event(), lambda: config))


def refused_sink(path: Path) -> CdcError:
    """What ends ``cdc sink``, likewise."""
    config = load(path, {})
    return _refused(lambda stop: run_sink(config, stop))


def _refused(run: Callable[[threading.Event], None]) -> CdcError:
    stop = threading.Event()
    watchdog = threading.Timer(_REFUSAL_TIMEOUT_S, stop.set)
    watchdog.start()
    try:
        with pytest.raises(CdcError) as caught:
            run(stop)
    finally:
        watchdog.cancel()
    return caught.value


def remedy(said: str) -> str:
    """The command after ``remedy:``, of an error or inside a JSON log line, without its comment."""
    if (plain := re.search(r"^  remedy: (.*)$", said, re.MULTILINE)) is not None:
        text = plain[1]
    else:
        logged = re.search(r'remedy: ((?:[^"\\]|\\")*)', said)
        assert logged, said
        text = logged[1].replace('\\"', '"')
    return re.split(r"\s+-- ", text)[0].strip()


def bindings(printed: str) -> Iterator[AclBinding]:
    """What ``kafka-acls.sh`` would make of each of its lines."""
    parser = argparse.ArgumentParser()
    for name in ("--bootstrap-server", "--command-config", "--allow-principal"):
        parser.add_argument(name, required=True)
    parser.add_argument("--add", action="store_true", required=True)
    parser.add_argument("--operation", action="append", required=True)
    parser.add_argument("--resource-pattern-type", default="literal", choices=["literal", "prefixed"])
    resource = parser.add_mutually_exclusive_group(required=True)
    resource.add_argument("--topic")
    resource.add_argument("--group")
    resource.add_argument("--transactional-id")
    for line in printed.splitlines():
        if not line.startswith("kafka-acls.sh "):
            assert line.startswith("#"), line
            continue
        given = vars(parser.parse_args(shlex.split(line, comments=True)[1:]))
        kind, name = next((name, given[name]) for name in _RESOURCES if given[name])
        pattern = ResourcePatternType[given["resource_pattern_type"].upper()]
        yield from (
            AclBinding(
                _RESOURCES[kind],
                name,
                pattern,
                given["allow_principal"],
                "*",
                AclOperation[_snake(operation)],
                AclPermissionType.ALLOW,
            )
            for operation in given["operation"]
        )


def _snake(operation: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", operation).upper()
