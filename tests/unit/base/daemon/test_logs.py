"""Logs: one shape for ours and the libraries', JSON off a terminal, and never a secret."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from cdc.base.daemon.logs import configure


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("cdc")
    before = root.handlers[:], root.level, ours.level
    yield
    root.handlers[:], root.level = before[0], before[1]
    ours.setLevel(before[2])
    logging.captureWarnings(False)
    structlog.reset_defaults()


def test_json_lines_off_a_terminal() -> None:
    out = io.StringIO()
    configure("info", stream=out)
    structlog.get_logger("cdc.test").info("published", table="public.orders", rows=3)
    line = json.loads(out.getvalue())
    assert line.pop("timestamp").endswith("Z")
    assert line == {"message": "published", "table": "public.orders", "rows": 3, "level": "info", "logger": "cdc.test"}


def test_plain_text_on_a_terminal() -> None:
    out = Terminal()
    configure("info", stream=out)
    structlog.get_logger("cdc.test").info("published", rows=3)
    assert "published" in out.getvalue()
    assert not out.getvalue().startswith("{")


def test_loggers_made_before_configuring_are_configured() -> None:
    log = structlog.get_logger("cdc.early")
    out = io.StringIO()
    configure("info", stream=out)
    log.info("hello")
    assert json.loads(out.getvalue())["message"] == "hello"


def test_libraries_take_the_same_way_and_start_at_warning() -> None:
    out = io.StringIO()
    configure("debug", stream=out)
    logging.getLogger("library").info("chatter")
    logging.getLogger("library").warning("lost %s", "broker-1", extra={"node": 1})
    line = json.loads(out.getvalue())
    assert (line["message"], line["level"], line["logger"], line["node"]) == ("lost broker-1", "warning", "library", 1)


@pytest.mark.parametrize(("level", "shown"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_level(level: str, shown: int) -> None:
    out = io.StringIO()
    configure(level, stream=out)
    log = structlog.get_logger("cdc.test")
    for name in ("debug", "info", "warning", "error"):
        getattr(log, name)("x")
    assert len(out.getvalue().splitlines()) == shown


@pytest.mark.parametrize("out", [io.StringIO(), Terminal()], ids=["json", "terminal"])
@pytest.mark.parametrize("secret", ["hunter2", 'quo"te\\', "p@ss wörd"])
def test_secrets_are_masked_wherever_they_appear(out: io.StringIO, secret: str) -> None:
    configure("info", [secret], stream=out)
    log = structlog.get_logger("cdc.test")
    log.info(f"connecting with {secret}", dsn=f"host=db password={secret}", nested={"a": [secret]})
    logging.getLogger("library").warning("refused %r", secret)
    try:
        raise ValueError(f"bad password {secret}")
    except ValueError:
        log.exception("failed")
    said = out.getvalue()
    assert secret not in said
    assert json.dumps(secret)[1:-1] not in said
    assert repr(secret)[1:-1] not in said
    assert said.count("********") >= 5
    assert "ValueError" in said


def test_traceback_shows_no_local_variables() -> None:
    out = Terminal()
    configure("info", stream=out)

    def fail(local_value: str) -> None:
        raise ValueError(len(local_value))

    try:
        fail("not-to-be-seen")
    except ValueError:
        structlog.get_logger("cdc.test").exception("failed")
    assert "Traceback" in out.getvalue()
    assert "local_value=" not in out.getvalue()


def test_second_call_replaces_the_first() -> None:
    first, second = io.StringIO(), io.StringIO()
    configure("info", stream=first)
    configure("info", stream=second)
    structlog.get_logger("cdc.test").info("x")
    assert not first.getvalue()
    assert len(second.getvalue().splitlines()) == 1


def test_a_traceback_that_nobody_catches_shows_no_secret(tmp_path: Path) -> None:
    """In a process of its own, for it is the interpreter that prints it."""
    script = tmp_path / "bug.py"
    script.write_text(
        "import threading\n"
        "from cdc.base.daemon.logs import guard_tracebacks, hide\n"
        "guard_tracebacks()\n"
        "hide(['hunter2'])\n"
        "def fail(): raise ValueError('bad password hunter2')\n"
        "thread = threading.Thread(target=fail); thread.start(); thread.join()\n"
        "fail()\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.count("ValueError: bad password ********") == 2
    assert "hunter2" not in done.stderr
