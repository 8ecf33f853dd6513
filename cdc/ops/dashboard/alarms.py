"""What needs attention, in the words of ``cdc status``, ``cdc check`` and ``cdc topics lint``, worst first. Pure.

This module judges nothing: a page with rules of its own would one day contradict the commands. Remedies are written
for people. Most are a sentence that ends in a command, some are only a command, some are prose. If there is a command,
the page offers it for copying.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from cdc.base.printed_commands import READING, for_file

_SQL: Final = "SELECT|ALTER|GRANT|REVOKE|CREATE|DROP|COMMIT PREPARED|ROLLBACK PREPARED|INSERT|DELETE|UPDATE|VACUUM"
_COMMAND: Final = re.compile(
    rf"(?:^|: )((?:cdc (?:{READING}|init|stack)\b|(?:{_SQL}) |ps -|kill -|kafka-[a-z-]+(?:\.sh)? -).*)$"
)


def command_of(remedy: str) -> str:
    """Returns the commands in a remedy, ready to paste, one per line; empty if the remedy is prose."""
    found = (_COMMAND.search(line) for line in remedy.splitlines())
    return "\n".join(_first(each[1].strip()) for each in found if each is not None)


def _first(command: str) -> str:
    """Returns the first of two alternatives, "A; or B"."""
    one, choice, _ = command.partition("; or ")
    # In SQL, "--" begins a comment, and a "; or " in it separates no commands.
    return f"{one};" if choice and "--" not in one else command


Level: TypeAlias = Literal["error", "warning"]

_LEVELS: Final[Mapping[str, Level]] = {"FAIL": "error", "WARN": "warning"}


class Alarm(NamedTuple):
    """One thing that needs attention.

    Attributes:
        part: source, topics, sink …
        remedy: the command or change that fixes it; empty if waiting is enough.
        told_by: the command that reports the same.
    """

    level: Level
    part: str
    text: str
    remedy: str
    told_by: str


def alarms(
    status: Mapping[str, Any],
    check: Mapping[str, Any] | None,
    topics: Mapping[str, Any] | None,
    path: Path | None = None,
) -> list[Alarm]:
    """Returns all alarms, errors first, without duplicates.

    Args:
        status: what ``cdc status --json`` prints.
        check: what ``cdc check --json`` prints; None before the first check.
        topics: what ``topics_health`` returns; None before the first time.
        path: the configuration file, for the commands in remedies.
    """
    found = [Alarm("error", each["part"], each["text"], each["remedy"], "cdc status") for each in status["problems"]]
    for each in () if check is None else check["findings"]:
        if (level := _LEVELS.get(each["level"])) and not _is_told(each["text"], found):
            text = f"{each['subject']}: {each['text']}"
            found.append(Alarm(level, each["part"], text, each["remedy"], "cdc check"))
    for topic in () if topics is None else topics["topics"]:
        for each in topic["findings"]:
            if each["level"] == "error":
                found.append(Alarm("error", "topics", f"{topic['topic']}: {each['text']}", each["remedy"], each["by"]))
    found = [each._replace(remedy=for_file(each.remedy, path)) for each in found]
    return sorted(found, key=lambda each: each.level != "error")


def _is_told(text: str, found: Sequence[Alarm]) -> bool:
    """Whether an alarm already says this: a server that is down is reported by the status and by the check."""
    return any(text in each.text for each in found)


class Since:
    """Remembers when this process first saw each alarm."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], float] = {}

    def document(self, found: Sequence[Alarm], now: float) -> list[dict[str, Any]]:
        """Returns the alarms as plain values, with ``since`` (seconds since 1970) and the command to paste.

        Alarms that are no longer there are forgotten.
        """
        self._seen = {_key(each): self._seen.get(_key(each), now) for each in found}
        return [
            {
                **each._asdict(),
                "command": command_of(each.remedy),
                "key": " ".join(_key(each)),
                "since": self._seen[_key(each)],
            }
            for each in found
        ]


def _key(alarm: Alarm) -> tuple[str, str]:
    """Returns what identifies an alarm while the numbers in its text change."""
    return alarm.part, re.sub(r"\d+(?:[.,]\d+)*", "#", alarm.text)
