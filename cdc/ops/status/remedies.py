"""What of a remedy can be pasted. Pure.

A remedy is for people: most are a sentence with a command at its end, some are a command, some are prose alone.
"""

from __future__ import annotations

import re
from typing import Final

from cdc.base.printed_commands import READING

_SQL: Final = "SELECT|ALTER|GRANT|REVOKE|CREATE|DROP|COMMIT PREPARED|ROLLBACK PREPARED|INSERT|DELETE|UPDATE|VACUUM"
_COMMAND: Final = re.compile(
    rf"(?:^|: )((?:cdc (?:{READING}|init|stack)\b|(?:{_SQL}) |ps -|kill -|kafka-[a-z-]+(?:\.sh)? -).*)$"
)


def command_of(remedy: str) -> str:
    """The lines of it that can be pasted as they stand; empty for prose."""
    found = (_COMMAND.search(line) for line in remedy.splitlines())
    return "\n".join(_first(each[1].strip()) for each in found if each is not None)


def _first(command: str) -> str:
    """Of two that one may choose from, the first."""
    one, choice, _ = command.partition("; or ")
    return f"{one};" if choice and "--" not in one else command
