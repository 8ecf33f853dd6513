"""The commands that messages print, so that they can be pasted: with the configuration file of this process.

A message is made where nobody knows of files. What shows it to a person sends it through ``pasteable`` first.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Final

_WITH_FILE: Final = re.compile(
    r"\bcdc (?:audit|backfill|check|config show|connect-schema|dashboard|get|grants (?:source|sink|kafka)|health"
    r"|history|mirror|reconcile|run|serve|sink|snapshot|status|tables (?:list|add|remove)|topics [a-z-]+"
    r"|watch)\b(?! -c )"
)
"""Commands that read the file, where they do not name one yet."""

_file: str | None = None


def name_file(path: Path | None) -> None:
    """From now on, commands are printed with this file; None for ``cdc.yaml``, which commands find by themselves."""
    global _file
    _file = None if path is None else shlex.quote(str(path))


def pasteable(text: str) -> str:
    """The text, in which each of our commands names the file that this process was given."""
    if _file is None:
        return text
    return _WITH_FILE.sub(lambda found: f"{found[0]} -c {_file}", text)
