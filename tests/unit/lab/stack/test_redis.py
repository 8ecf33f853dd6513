"""The embedded Redis: one artefact for four systems, and words for the rest; a given one."""

from __future__ import annotations

import hashlib
import platform
import zipfile

import pytest

from cdc.base.errors import StackError
from cdc.lab.stack import open_redis
from cdc.lab.stack import redis_server as module
from cdc.lab.stack.artefacts import Artefact
from cdc.lab.stack.redis_server import fetch_redis


@pytest.fixture
def jar(monkeypatch, tmp_path):
    """An artefact with four programs, each of which says its name."""
    path = tmp_path / "jar"
    names = [f"redis-server-7.0.15-{system}-{kind}" for system in ("linux", "darwin") for kind in ("amd64", "arm64")]
    with zipfile.ZipFile(path, "w") as file:
        for name in ("META-INF/MANIFEST.MF", *names):
            file.writestr(name, name)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    artefact = Artefact("org.example", "redis", "1.0", digest, path.stat().st_size)
    monkeypatch.setattr(module, "read_lock", lambda _: [artefact])
    monkeypatch.setenv("CDC_CACHE_DIR", str(tmp_path / "cache"))
    return path


@pytest.mark.parametrize(
    ("system", "machine", "program"),
    [
        ("Linux", "x86_64", "linux-amd64"),
        ("Linux", "aarch64", "linux-arm64"),
        ("Darwin", "x86_64", "darwin-amd64"),
        ("Darwin", "arm64", "darwin-arm64"),
    ],
)
def test_each_system_gets_its_own_program(monkeypatch, jar, system, machine, program):
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "machine", lambda: machine)

    def download(artefact, directory):
        return jar.rename(directory / "part")

    found = fetch_redis(download=download)
    assert found.read_text() == f"redis-server-7.0.15-{program}"
    assert found.stat().st_mode & 0o111
    assert fetch_redis(download=download) == found


def test_another_system_is_told_what_to_do(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(StackError, match=r"there is no embedded Redis for \w+ on riscv64") as refused:
        fetch_redis()
    assert "CDC_REDIS_URL" in refused.value.remedy


def test_a_given_redis_that_does_not_answer_is_refused_without_its_password():
    with pytest.raises(StackError, match=r"the given Redis at 127\.0\.0\.1:1 does not answer") as refused:
        open_redis(url="redis://me:secret@127.0.0.1:1/0")
    assert "secret" not in str(refused.value)
