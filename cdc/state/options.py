"""Client settings as an application gives them → settings that cannot break a promise of this room."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cdc.base.config.checks import RESERVED_OPTIONS
from cdc.base.errors import ConfigError

_OURS: Final = RESERVED_OPTIONS.keys() - {"bootstrap.servers", "metadata.broker.list", "sasl.password"}


def client_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, with booleans as librdkafka writes them.

    Args:
        options: librdkafka settings, ``bootstrap.servers`` among them.

    Raises:
        ConfigError: one is set here by the library itself, or there is no ``bootstrap.servers``.
    """
    if reserved := sorted(options.keys() & _OURS):
        raise ConfigError(
            f"the Kafka option {reserved[0]!r} cannot be set here: what cdc.state promises depends on its own setting",
            remedy=f"leave {', '.join(reserved)} out",
        )
    if not options.get("bootstrap.servers") and not options.get("metadata.broker.list"):
        raise ConfigError("no broker is named", remedy='give "bootstrap.servers" as host:port, several with commas')
    return {name: str(value).lower() if isinstance(value, bool) else value for name, value in options.items()}
