"""Adds this process's configuration file to the commands in messages, so that people can paste them.

The code that makes a message does not know the file. The code that shows it to a person calls ``pasteable`` first.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Final

READING: Final = (
    "audit|backfill|check|config show|connect-schema|dashboard|get|grants (?:source|sink|kafka)|health"
    "|history|mirror|quarantine (?:list|show|retry|drop)|reconcile|run|serve|sink|snapshot|status"
    "|tables (?:list|add|remove)|topics [a-z-]+|watch"
)
"""The commands that read the configuration file, as a regular expression."""

_WITH_FILE: Final = re.compile(rf"(?<!['\"])\bcdc (?:{READING})\b(?!-)(?![^|#;`,)\n]* -c )")
"""Matches such a command that names no file yet. A command in quotes is left alone: it is a text to search for, for
example with grep."""

_file: str | None = None


def name_file(path: Path | None) -> None:
    """Set the file to print with commands; None for ``cdc.yaml``, which commands find by themselves."""
    global _file
    _file = None if path is None else shlex.quote(str(path))


def pasteable(text: str) -> str:
    """Returns the text with this process's configuration file added to each cdc command."""
    return text if _file is None else _with(text, _file)


def for_file(text: str, path: Path | None) -> str:
    """Returns the text with ``path`` added to each cdc command; None for ``cdc.yaml``, which needs no option."""
    return text if path is None else _with(text, shlex.quote(str(path)))


def _with(text: str, file: str) -> str:
    return _WITH_FILE.sub(lambda found: f"{found[0]} -c {file}", text)
