"""Writes the views of a report into a folder. Each file appears whole or not at all."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cdc.base.errors import ConfigError
from cdc.spark.report.document import as_json
from cdc.spark.report.html import as_html
from cdc.spark.report.junit import as_junit
from cdc.spark.report.model import Report
from cdc.spark.report.text import as_text

NAMES: Final = ("report.json", "report.html", "junit.xml", "report.txt")
"""The file names of the views."""


@dataclass(frozen=True, slots=True)
class Written:
    """The paths of the views."""

    json: Path
    html: Path
    junit: Path
    text: Path


def write_all(report: Report, folder: Path) -> Written:
    """Writes report.json, report.html, junit.xml and report.txt, replacing those of an earlier run.

    Raises:
        ConfigError: the folder cannot be created or written.
    """
    written = Written(*(folder / name for name in NAMES))
    views = {
        written.json: as_json(report),
        written.html: as_html(report),
        written.junit: as_junit(report),
        written.text: as_text(report),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, content in views.items():
            _replace(path, content)
    except OSError as error:
        raise ConfigError(
            f"cannot write the report to {folder}: {error.strerror or error}",
            remedy="name a folder that this user may write to, on a disk with free space",
        ) from error
    return written


def _replace(path: Path, content: str) -> None:
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with new.open("w", encoding="utf-8", newline="\n") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
