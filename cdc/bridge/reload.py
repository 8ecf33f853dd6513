"""SIGHUP: reads the configuration file again. Only the choice of tables and columns may change without a restart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from pydantic import BaseModel

from cdc.base.config import Config
from cdc.base.errors import ConfigError

RELOADABLE: Final = frozenset(
    {
        "source.tables",
        "source.exclude",
        "source.keys",
        "source.columns",
        "source.rows",
        "source.quarantine",
        "topics.names",
    }
)
"""Options that a session reads when it begins, and that move no position, topic or secret of the tables so far."""

_READ_BY_OTHERS: Final = ("sink", "http.sink_port", "serve")
"""Options that only ``cdc sink`` and ``cdc serve`` read; both ignore SIGHUP."""


def reloaded(now: Config, read: Callable[[], Config]) -> tuple[Config, list[str]]:
    """Returns the configuration to go on with, and the keys that changed; none if the file says the same.

    Args:
        now: the configuration in force.
        read: reads file and environment.

    Raises:
        ConfigError: the file is invalid, or changes what needs a restart. Nothing of it may be applied then.
    """
    new = read()
    changed = [key for key in differing(now.model_dump(), new.model_dump()) if not key.startswith(_READ_BY_OTHERS)]
    fixed = [key for key in changed if key not in RELOADABLE]
    if fixed:
        raise ConfigError(
            f"{', '.join(fixed)} cannot change while the bridge runs",
            remedy="restart the bridge; or undo that and send SIGHUP again",
        )
    return new, changed


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Returns the dotted keys (``section.option``) that differ. An option whose value is a mapping counts as one."""
    found = []
    for name, value in one.items():
        if value == other[name]:
            continue
        if isinstance(value, dict) and isinstance(other[name], dict) and _is_section(name):
            found += [f"{name}.{option}" for option in value if value[option] != other[name].get(option)]
        else:
            found.append(name)
    return found


def _is_section(name: str) -> bool:
    annotation = Config.model_fields[name].annotation
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
