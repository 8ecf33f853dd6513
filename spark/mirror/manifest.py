"""``current.json`` in a table's folder says which Parquet files make up the table, and at which offsets.

It is replaced atomically. A reader that loads it and reads ``state`` (one row per key) has the table as it was at
``state_offsets``. If the reader applies ``changes`` on top (later files win, rows with ``cdc_deleted`` are removed), it
has the table as it was at the position's offsets. The files that a manifest names stay until the second compaction from
then on, so a reader may take its time.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from cdc.spark.errors import JobError
from cdc.spark.mirror.position import LakePosition, Offsets

NAME: Final = "current.json"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class LakeManifest:
    """The content of ``current.json``.

    Attributes:
        columns: the newest SQL type of each column.
        key: the names of the key columns.
        state: the folder with the latest row of each key; empty before the first compaction.
        state_offsets: the first offset that ``state`` does not hold, by partition.
        changes: the folders of later records, oldest first.
        retired: the folders of the manifest before the last compaction, kept for readers that still use it.
        position: the position of all these files together.
        types: Spark's type of each column in all these files; empty if an older version wrote the manifest.
    """

    topic: str
    columns: dict[str, str] = field(default_factory=dict)
    key: tuple[str, ...] = ()
    state: str = ""
    state_offsets: Offsets = field(default_factory=dict)
    changes: tuple[str, ...] = ()
    retired: tuple[str, ...] = ()
    position: LakePosition = field(default_factory=LakePosition)
    types: dict[str, str] = field(default_factory=dict)

    def folders(self) -> set[str]:
        """Returns all folders that are in use."""
        return {*self.changes, *self.retired} | ({self.state} if self.state else set())

    def compacted(self, state: str) -> LakeManifest:
        """Returns the manifest after a compaction, with ``state`` in place of all files so far."""
        former = tuple(each for each in (self.state, *self.changes) if each)
        return replace(self, state=state, state_offsets=self.position.offsets, changes=(), retired=former)


def read(folder: Path, topic: str) -> LakeManifest:
    """Reads the manifest of a folder; returns an empty one if there is none.

    Raises:
        JobError: the file belongs to another program or to another version.
    """
    path = folder / NAME
    if not path.exists():
        return LakeManifest(topic)
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        if fields["version"] != _VERSION or fields["topic"] != topic:
            raise ValueError(f"version {fields['version']} of topic {fields['topic']}")
        return LakeManifest(
            topic=topic,
            columns=fields["columns"],
            types=fields.get("types", {}),
            key=tuple(fields["key"]),
            state=fields["state"]["folder"],
            state_offsets={int(partition): offset for partition, offset in fields["state_offsets"].items()},
            changes=tuple(each["folder"] for each in fields["changes"]),
            retired=tuple(fields["retired"]),
            position=LakePosition.from_fields(fields["position"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise JobError(
            f"{path} is not a manifest of version {_VERSION}: {error}", remedy="name another folder"
        ) from error


def write(folder: Path, manifest: LakeManifest) -> None:
    """Replaces the manifest atomically: writes a new file, syncs it to disk, and renames it."""
    text = json.dumps(_fields(folder, manifest), indent=2, ensure_ascii=False) + "\n"
    beside = folder / f".{NAME}"
    with beside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(folder / NAME)
    # The rename itself reaches the disk only when the folder is synced, too.
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sweep(folder: Path, manifest: LakeManifest) -> None:
    """Removes folders that the manifest does not name: those of abandoned batches, and those retired long ago."""
    kept = manifest.folders()
    for each in folder.iterdir():
        if each.is_dir() and each.name not in kept:
            shutil.rmtree(each)


def _fields(folder: Path, manifest: LakeManifest) -> dict[str, Any]:
    return {
        "version": _VERSION,
        "topic": manifest.topic,
        "columns": manifest.columns,
        "types": manifest.types,
        "key": manifest.key,
        "state": {"folder": manifest.state, "files": _files(folder, [manifest.state] if manifest.state else [])},
        "state_offsets": {str(partition): offset for partition, offset in manifest.state_offsets.items()},
        "changes": [{"folder": each, "files": _files(folder, [each])} for each in manifest.changes],
        "retired": manifest.retired,
        "position": manifest.position.as_fields(),
    }


def _files(folder: Path, names: Sequence[str]) -> list[str]:
    return sorted(f"{name}/{path.name}" for name in names for path in (folder / name).glob("*.parquet"))
