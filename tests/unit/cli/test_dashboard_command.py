"""``cdc dashboard`` where it cannot listen: whoever started it learns which option to change."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "shop.yaml"
    path.write_text("name: shop\nsource: {dsn: host=127.0.0.1}\nkafka: {bootstrap: '127.0.0.1:1'}\n")
    return path


def refused(path: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "cdc", "dashboard", "-c", str(path), *arguments]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60, text=True)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert "choose another with --port or --host" in done.stderr
    return done.stderr


def test_a_port_in_use(path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in refused(path, "--port", str(port))


def test_a_host_that_no_name_can_be(path: Path) -> None:
    assert "cannot listen on ü..b:0: " in refused(path, "--port", "0", "--host", "ü..b")
