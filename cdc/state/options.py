"""Checks the librdkafka settings of an application: none may change an option that the library's promises rest on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cdc.base.config.checks import RESERVED_OPTIONS
from cdc.base.errors import ConfigError

_OURS: Final = RESERVED_OPTIONS.keys() - {"bootstrap.servers", "metadata.broker.list", "sasl.password"}
"""Options that an application may not set. The three others are reserved only in the bridge's configuration, which has
settings of its own for them."""


def client_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings, with booleans as librdkafka writes them.

    Args:
        options: librdkafka settings, ``bootstrap.servers`` among them.

    Raises:
        ConfigError: an option is reserved for the library, or no broker is named.
    """
    if reserved := sorted(options.keys() & _OURS):
        raise ConfigError(
            f"the Kafka option {reserved[0]!r} cannot be set here: cdc.state sets it itself, to keep its promises",
            remedy=f"leave {', '.join(reserved)} out",
        )
    if not options.get("bootstrap.servers") and not options.get("metadata.broker.list"):
        raise ConfigError("no broker is named", remedy='give "bootstrap.servers" as host:port, several with commas')
    return {name: str(value).lower() if isinstance(value, bool) else value for name, value in options.items()}
