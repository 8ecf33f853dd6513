"""The broker's jars: which ones is committed in ``kafka.lock``, fetched once per user."""

from __future__ import annotations

import hashlib
from pathlib import Path

from cdc.stack.artefacts import Download, fetch, read_lock
from cdc.stack.cache import Say, cache_dir, make_once, silent

KAFKA_LOCK = Path(__file__).with_name("kafka.lock")


def kafka_version(lock: Path = KAFKA_LOCK) -> str:
    """Version of the broker in the lock."""
    return next(artefact.version for artefact in read_lock(lock) if artefact.name.startswith("kafka_"))


def kafka_home(lock: Path = KAFKA_LOCK) -> Path:
    """Where everything made from this lock is cached; jars are in ``libs`` below it. Another lock, another place."""
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()[:12]
    return cache_dir() / f"kafka-{kafka_version(lock)}-{digest}"


def fetch_jars(lock: Path = KAFKA_LOCK, *, say: Say = silent, download: Download | None = None) -> Path:
    """The directory with every jar of the lock, downloaded and checked at the first call.

    Args:
        lock: the committed list.
        say: told about the progress of a download every few seconds.
        download: how to get one artefact; see ``artefacts.fetch``.

    Raises:
        StackError: an artefact cannot be had, or is not the locked one.
    """

    def make(directory: Path) -> None:
        libs = directory / "libs"
        libs.mkdir()
        what, instead = f"Kafka {kafka_version(lock)}", "set CDC_KAFKA to a broker of yours"
        fetch(read_lock(lock), libs, what=what, instead=instead, say=say, download=download)

    return make_once(kafka_home(lock), make) / "libs"
