"""What wants attention, in the words of ``cdc status``, ``cdc check`` and ``cdc topics lint``, worst first. Pure.

Nothing is judged here: a page that judged by itself would some day say other things than the commands. A remedy is for
people: most are a sentence with a command at its end, some are a command, some are prose. The page offers the command.
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
    """The lines of it that can be pasted as they stand; empty for prose."""
    found = (_COMMAND.search(line) for line in remedy.splitlines())
    return "\n".join(_first(each[1].strip()) for each in found if each is not None)


def _first(command: str) -> str:
    """Of two that one may choose from, the first."""
    one, choice, _ = command.partition("; or ")
    return f"{one};" if choice and "--" not in one else command


Level: TypeAlias = Literal["error", "warning"]

_LEVELS: Final[Mapping[str, Level]] = {"FAIL": "error", "WARN": "warning"}


class Alarm(NamedTuple):
    """One thing.

    Attributes:
        part: source, topics, sink …
        remedy: the command or change that mends it; empty when waiting does.
        told_by: the command that says the same.
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
    """All of them, errors first, each once.

    Args:
        status: what ``cdc status --json`` prints.
        check: what ``cdc check --json`` prints; None before it was looked.
        topics: as ``TopicsHealth`` tells it; None before it was looked.
        path: of the configuration, for the commands of remedies.
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
    """A server that is down is found by the status and by the check."""
    return any(text in each.text for each in found)


class Since:
    """When each alarm was first seen by this process."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], float] = {}

    def document(self, found: Sequence[Alarm], now: float) -> list[dict[str, Any]]:
        """Plain values, with ``since``: seconds since 1970, and what can be pasted. What is gone is forgotten."""
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
    """What stays the same while its figures change."""
    return alarm.part, re.sub(r"\d+(?:[.,]\d+)*", "#", alarm.text)
