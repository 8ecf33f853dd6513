"""The embedded schema registry: it is downloaded and unpacked once."""

from __future__ import annotations

import hashlib
import io
import tarfile

import pytest

from cdc.base.errors import StackError
from cdc.lab.stack import registry as module
from cdc.lab.stack.artefacts import Artefact
from cdc.lab.stack.registry import fetch_registry


@pytest.fixture
def packed(monkeypatch, tmp_path):
    path = tmp_path / "packed"
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo("quarkus-run.jar")
        member.size = 3
        archive.addfile(member, io.BytesIO(b"jar"))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    artefact = Artefact("org.example", "registry", "1.0", digest, path.stat().st_size, "all", "tar.gz")
    monkeypatch.setattr(module, "read_lock", lambda _: [artefact])
    monkeypatch.setenv("CDC_CACHE_DIR", str(tmp_path / "cache"))
    return path


def test_it_is_unpacked_once_and_the_archive_is_not_kept(packed):
    def download(artefact, directory):
        return packed.rename(directory / "part")

    found = fetch_registry(download=download)
    assert (found / "quarkus-run.jar").read_bytes() == b"jar"
    assert [each.name for each in found.parent.iterdir()] == ["app"]
    assert fetch_registry(download=download) == found


def test_a_failed_download_says_what_else_there_is(packed):
    def offline(artefact, directory):
        raise OSError("network is unreachable")

    with pytest.raises(StackError, match=r"cannot download org\.example:registry:1\.0") as refused:
        fetch_registry(download=offline)
    assert "CDC_REGISTRY_URL" in refused.value.remedy
