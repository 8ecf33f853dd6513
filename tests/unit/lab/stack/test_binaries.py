"""Server programs by version: unpacked from the locked artefact, refused where nobody makes them."""

from __future__ import annotations

import hashlib
import io
import platform
import tarfile
import zipfile

import pytest

from cdc.base.errors import StackError
from cdc.lab.stack import binaries
from cdc.lab.stack.artefacts import read_lock
from cdc.lab.stack.binaries import POSTGRES_LOCK, find_binaries, materials

CONTENT = b"#!/bin/sh\necho postgres\n"


def packed_program() -> bytes:
    """A jar with a tarball of one program, as the real ones are."""
    packed, outer = io.BytesIO(), io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz") as archive:
        program = tarfile.TarInfo("bin/postgres")
        program.size, program.mode = len(CONTENT), 0o755
        archive.addfile(program, io.BytesIO(CONTENT))
    with zipfile.ZipFile(outer, "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", "")
        archive.writestr("postgres-linux.txz", packed.getvalue())
    return outer.getvalue()


JAR = packed_program()


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """This process believes itself on Linux with glibc, with an empty cache."""
    monkeypatch.setenv("CDC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.36"))
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    return monkeypatch


def test_the_committed_lock_names_every_version_for_both_machines():
    artefacts = read_lock(POSTGRES_LOCK)
    assert sorted((each.name.rsplit("-", 1)[1], each.version.split(".")[0]) for each in artefacts) == [
        (architecture, major) for architecture in ("amd64", "arm64v8") for major in ("14", "15", "17")
    ]
    assert all(len(each.sha256) == 64 for each in artefacts)


def test_programs_are_unpacked_once(machine, tmp_path):
    lock = tmp_path / "postgres.lock"
    digest = hashlib.sha256(JAR).hexdigest()
    lock.write_text(f"org.example:binaries-linux-arm64v8:15.1.0 {digest} {len(JAR)}\n")
    machine.setattr(binaries, "POSTGRES_LOCK", lock)
    asked = []

    def download(artefact, directory):
        asked.append(artefact.version)
        (directory / "some.jar").write_bytes(JAR)
        return directory / "some.jar"

    for _ in range(2):
        found = find_binaries(15, download=download)
        program = found.home / found.programs / "postgres"
        assert program.read_bytes() == CONTENT
        assert program.stat().st_mode & 0o555 == 0o555
    assert asked == ["15.1.0"]
    assert [path.name for path in found.home.iterdir()] == ["tree"]


def test_a_system_without_binaries_is_told_what_to_do(machine):
    machine.setattr(platform, "libc_ver", lambda: ("", ""))
    with pytest.raises(StackError, match="no embedded binaries of PostgreSQL 17 for Linux on aarch64") as refused:
        find_binaries(17)
    assert "ask for 16 or 18" in refused.value.remedy
    assert "CDC_PG_URL" in refused.value.remedy
    assert "17 not available for this system" in materials()
