"""The commands that messages print, so that they can be pasted: with the configuration file of this process.

A message is made where nobody knows of files. What shows it to a person sends it through ``pasteable`` first.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Final

READING: Final = (
    "audit|backfill|check|config show|connect-schema|dashboard|get|grants (?:source|sink|kafka)|health"
    "|history|mirror|reconcile|run|serve|sink|snapshot|status|tables (?:list|add|remove)|topics [a-z-]+|watch"
)
"""Commands that read the file, as a regular expression."""

_WITH_FILE: Final = re.compile(rf"(?<!['\"])\bcdc (?:{READING})\b(?!-)(?![^|#;`,)\n]* -c )")
"""Where they do not name one yet. What stands in quotes is looked for, by grep for instance, and not run."""

_file: str | None = None


def name_file(path: Path | None) -> None:
    """From now on, commands are printed with this file; None for ``cdc.yaml``, which commands find by themselves."""
    global _file
    _file = None if path is None else shlex.quote(str(path))


def pasteable(text: str) -> str:
    """The text, in which each of our commands names the file that this process was given."""
    return text if _file is None else _with(text, _file)


def for_file(text: str, path: Path | None) -> str:
    """The same for the deployment of another file; None for ``cdc.yaml``, which commands find by themselves."""
    return text if path is None else _with(text, shlex.quote(str(path)))


def _with(text: str, file: str) -> str:
    return _WITH_FILE.sub(lambda found: f"{found[0]} -c {file}", text)
