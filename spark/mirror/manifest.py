"""``current.json`` in a table's folder: which Parquet files are the table, and where they stand. Switched atomically.

A reader loads it, reads ``state`` (one row per key) and has the table as it was at ``state_offsets``; with ``changes``
on top (later files win, ``cdc_deleted`` rows go) it has the table as it was at the position's offsets. Files that a
manifest names stay until the compaction after the next one, so a reader may take its time.
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
        columns: name → SQL type, the newest.
        key: names of the key columns.
        state: folder with the latest row of each key; empty before the first compaction.
        state_offsets: the first offset that ``state`` does not hold, by partition.
        changes: folders of what came since, oldest first.
        retired: folders of the manifest before the last compaction: still there for readers that have that one.
        position: where all of it stands.
        types: name → what the column is in all of these files, in Spark's words; empty where an older version wrote.
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
        """All that are in use."""
        return {*self.changes, *self.retired} | ({self.state} if self.state else set())

    def compacted(self, state: str) -> LakeManifest:
        """With ``state`` in place of everything so far."""
        former = tuple(each for each in (self.state, *self.changes) if each)
        return replace(self, state=state, state_offsets=self.position.offsets, changes=(), retired=former)


def read(folder: Path, topic: str) -> LakeManifest:
    """The manifest; an empty one where there is none.

    Raises:
        JobError: another program's, or a newer version's.
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
        raise JobError(f"{path} is not of version {_VERSION}: {error}", remedy="name another folder") from error


def write(folder: Path, manifest: LakeManifest) -> None:
    """Switch readers over: written beside, forced to disk, renamed."""
    text = json.dumps(_fields(folder, manifest), indent=2, ensure_ascii=False) + "\n"
    beside = folder / f".{NAME}"
    with beside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(folder / NAME)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sweep(folder: Path, manifest: LakeManifest) -> None:
    """Remove folders that the manifest does not name: of batches that were given up, and long retired ones."""
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
