"""Disks of a few megabytes, which only root can make."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import psutil
import pytest

from cdc.lab.stack import KafkaBroker, PostgresServer

_BLOCK: Final = bytes(1 << 16)


def owner_of(server: KafkaBroker | PostgresServer) -> tuple[int, int]:
    """The user and the group that a running server runs as."""
    running = psutil.Process(server.pid)
    return running.uids().effective, running.gids().effective


@contextmanager
def small_disk(at: Path, size_mb: int, owner: tuple[int, int]) -> Iterator[None]:
    """Mount a disk at a folder, which belongs to this user and group. Without the right to, the test is skipped."""
    options = f"size={size_mb}m,mode=700,uid={owner[0]},gid={owner[1]}"
    if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", at], check=False).returncode:
        pytest.skip("only root may mount a small disk")
    try:
        yield
    finally:
        subprocess.run(["umount", at], check=True)


def enlarge(disk: Path) -> None:
    """Make room on a small disk."""
    subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)


@contextmanager
def small_folder(server: KafkaBroker | PostgresServer, folder: Path, size_mb: int) -> Iterator[None]:
    """Put one folder of a server on a small disk. At the end the server is stopped, because its folder is gone."""
    owner = owner_of(server)
    server.stop()
    with tempfile.TemporaryDirectory() as aside:
        shutil.copytree(folder, aside, dirs_exist_ok=True)
        with small_disk(folder, size_mb, owner):
            shutil.copytree(aside, folder, dirs_exist_ok=True)
            for each in (folder, *folder.rglob("*")):
                os.chown(each, *owner)
            server.restart()
            try:
                yield
            finally:
                server.stop()


@contextmanager
def filled(folder: Path) -> Iterator[None]:
    """Leave no byte on the disk while the block lasts."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):  # the server takes room at the same time
        while free := shutil.disk_usage(folder).free:
            file.write(_BLOCK[:free])
    try:
        yield
    finally:
        filler.unlink()
