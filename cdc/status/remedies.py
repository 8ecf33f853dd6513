"""What of a remedy can be pasted, and into which deployment it goes. Pure.

A remedy is for people: most are a sentence with a command at its end, some are a command, some are prose alone.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Final

_SQL: Final = "SELECT|ALTER|GRANT|REVOKE|CREATE|DROP|COMMIT PREPARED|ROLLBACK PREPARED|INSERT|DELETE|UPDATE|VACUUM"
_COMMAND: Final = re.compile(rf"(?:^|: )((?:cdc [a-z]|(?:{_SQL}) |ps -|kill -|kafka-[a-z-]+(?:\.sh)? -).*)$")
_OF_A_DEPLOYMENT: Final = re.compile(
    r"(?<!['\"])\bcdc (?:run|sink|serve|check|status|backfill|reconcile|history|health|mirror|snapshot|audit|grants)\b"
    r"[^|#;`,)\n]*?(?=\s*(?:$|[|#;`,)\n]|  ))"
)


def command_of(remedy: str) -> str:
    """The lines of it that can be pasted as they stand; empty for prose."""
    found = (_COMMAND.search(line) for line in remedy.splitlines())
    return "\n".join(_first(each[1].strip()) for each in found if each is not None)


def for_file(remedy: str, path: Path | None) -> str:
    """The same for the deployment of this file: ``cdc`` finds none but ``cdc.yaml`` by itself."""
    if path is None:
        return remedy
    option = f" -c {shlex.quote(str(path))}"
    return _OF_A_DEPLOYMENT.sub(lambda found: found[0] if " -c " in found[0] else found[0] + option, remedy)


def _first(command: str) -> str:
    """Of two that one may choose from, the first."""
    one, choice, _ = command.partition("; or ")
    return f"{one};" if choice and "--" not in one else command
