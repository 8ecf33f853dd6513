"""The stores of a view: one for the tables of a bridge, and one for topics of other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import structlog

from cdc.base.config import Config, ViewConfig
from cdc.base.errors import CdcError, ConfigError
from cdc.views.store.open import MEMORY, open_store
from cdc.views.store.port import Store

_REMEDY: Final = "keep `cdc serve` running: it fills the store again from the topics. Check the disk"

TABLES: Final = "tables"
TOPICS: Final = "topics"

log = structlog.get_logger("cdc.view")


class ViewStores:
    """Opens the stores of one view, as often as needed; stores in memory are the same each time.

    Args:
        config: with a ``view`` section.

    Raises:
        ConfigError: there is no such section.
    """

    def __init__(self, config: Config) -> None:
        self._view = wanted_view(config)
        self._name = config.name
        self._memory: dict[str, Store] = {}

    def open(self, part: str, *, read_only: bool = False) -> Store:
        """Opens a store; the caller closes it.

        Args:
            part: ``TABLES`` or ``TOPICS``.
            read_only: whether to refuse writes.
        """
        if self._view.store != MEMORY:
            secret = self._view.password
            password = None if secret is None else secret.get_secret_value()
            return open_store(place_of(self._view, self._name, part), password=password, read_only=read_only)
        from cdc.views.store.memory import MemoryStore

        first = self._memory.setdefault(part, open_store(MEMORY))
        assert isinstance(first, MemoryStore)
        return MemoryStore(first.contents)

    def look_through(self) -> None:
        """Checks all stores that are kept in folders, after a process that read one of them has crashed."""
        if self._view.is_redis or self._view.store == MEMORY:
            return
        from cdc.views.store.lmdb_store import look_through

        for part in (TABLES, TOPICS):
            place = Path(place_of(self._view, self._name, part))
            try:
                if reason := look_through(place):
                    log.error("the store is damaged", store=str(place), reason=reason, remedy=_REMEDY)
            except CdcError as error:
                log.error("the store could not be checked", error=error.message, remedy=error.remedy or _REMEDY)


def wanted_view(config: Config) -> ViewConfig:
    """The ``view`` section of the configuration.

    Raises:
        ConfigError: there is none.
    """
    if config.view is None:
        raise ConfigError("there is no view section in the configuration", remedy="add view: {store: …} to it")
    return config.view


def place_of(view: ViewConfig, name: str, part: str) -> str:
    """The address for ``open_store``: a folder below the configured one, or a prefix of keys in Redis."""
    if not view.is_redis:
        return str(Path(view.store, part))
    parts = urlsplit(view.store)
    options = dict(parse_qsl(parts.query))
    options["prefix"] = f"{options.get('prefix', name)}:{part}"
    return urlunsplit(parts._replace(query=urlencode(options)))
