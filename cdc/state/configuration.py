"""Configuration in a compacted topic: all instances of a service have the same, checked settings and learn of changes.

A setting is a key of the topic, and a pydantic model checks its value. A value that does not fit the model is
quarantined, and the last good one stays in force. It even stays in force after a restart: it is looked up in the
history, which ``ConfigWriter`` writes beside the topic.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, Generic, NamedTuple, Self, TypeVar

from pydantic import BaseModel, ValidationError

from cdc.base.errors import ConfigError, TopicRefused
from cdc.state.configuration_history import read_history, version_in
from cdc.state.entries import Change, Entry
from cdc.state.options import client_options
from cdc.state.reader import StateReader

Model = TypeVar("Model", bound=BaseModel)

log: Final = logging.getLogger("cdc.state")


class Quarantined(NamedTuple):
    """A value of a setting that does not fit its model.

    Attributes:
        version: the setting's version; 0 when a program other than ``ConfigWriter`` wrote the value.
        value: the bytes in the topic.
        reason: what is wrong with it.
    """

    version: int
    value: bytes
    reason: str


class Setting(Generic[Model]):
    """One setting of a ``ConfigStore``. Other threads may read ``value`` at any time."""

    def __init__(self, name: str, default: Model) -> None:
        self.name = name
        self.value = self.default = default
        self.version = 0
        """The version of ``value``: 0 for the default, and for a value that ``ConfigWriter`` did not write."""
        self.quarantined: Quarantined | None = None
        """The newest value, if it does not fit the model. ``value`` is then the last one that did."""
        self._watchers: list[Callable[[Model, Model], object]] = []

    def watch(self, changed: Callable[[Model, Model], object]) -> Callable[[], None]:
        """Calls ``changed(old, new)`` in ``poll`` and ``load``, once a new value is in force.

        Several changes in quick succession may lead to one call. Returns a function that ends the watch.
        """
        self._watchers.append(changed)
        return lambda: self._watchers.remove(changed)

    def calls(self, old: Model) -> list[Callable[[], object]]:
        """Returns the calls that are due if the value differs from the old one."""
        new = self.value
        return [] if old == new else [partial(told, old, new) for told in self._watchers]

    def parse(self, value: bytes) -> Model:
        """Parses a value with the model.

        Raises:
            ValidationError: the value does not fit.
        """
        return type(self.default).model_validate_json(value)


class ConfigStore:
    """The settings of a service, in each of its instances.

    Args:
        options: librdkafka settings, ``bootstrap.servers`` among them.
        topic: the configuration topic.

    Raises:
        ConfigError: an option is invalid.
        TopicRefused: the topic does not exist, or we may not read it.
        TopicUnavailable: no broker answers.
    """

    def __init__(self, options: Mapping[str, Any], topic: str) -> None:
        self._options, self._topic = client_options(options), topic
        self._reader = StateReader(options, topic)
        self._settings: dict[bytes, Setting[Any]] = {}
        self._due: deque[Callable[[], object]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def setting(self, name: str, default: Model) -> Setting[Model]:
        """Declares a setting. Do this before ``load``. Keys that nobody declares are ignored.

        Args:
            name: the setting's key.
            default: the value while the topic has none; its class is the model that checks values.

        Raises:
            ConfigError: the setting is declared already.
        """
        key = name.encode()
        if key in self._settings:
            raise ConfigError(f"setting {name!r} is declared twice", remedy="declare it once, and pass it on")
        declared = self._settings[key] = Setting(name, default)
        return declared

    def load(self) -> None:
        """Reads everything that was committed before this call, and puts it in force.

        Raises:
            TopicUnavailable: no broker answers, or an open Kafka transaction hides the end for minutes.
            TopicRefused: the topic is gone.
        """
        self._take(self._reader.load())

    def poll(self, timeout_s: float) -> None:
        """Waits up to ``timeout_s`` for changes, puts them in force and calls the watchers.

        Raises the errors of ``load``, and what a watcher raises. The next call then calls the remaining watchers.
        """
        self._take(self._reader.poll(timeout_s))

    def close(self) -> None:
        """Closes the connections. The values stay as they are."""
        self._reader.close()

    def _take(self, changes: Iterable[Change]) -> None:
        before: dict[bytes, Any] = {}
        for change in changes:  # also older ones: if the newest value does not fit, one of them is the last good one
            setting = self._settings.get(change.key)
            if setting is not None:
                before.setdefault(change.key, setting.value)
                self._apply(setting, change.new)
        for key, old in before.items():
            self._due += self._settings[key].calls(old)
        while self._due:
            self._due.popleft()()

    def _apply(self, setting: Setting[Any], entry: Entry | None) -> None:
        setting.quarantined = None
        if entry is None:
            setting.value, setting.version = setting.default, 0
            return
        version = version_in(entry.header)
        try:
            setting.value, setting.version = setting.parse(entry.value), version
        except ValidationError as error:
            setting.quarantined = Quarantined(version, entry.value, str(error))
            if setting.value is setting.default:
                self._find_last_good(setting)
            log.warning(
                "the value of setting %r in topic %r does not fit %s, so version %d stays in force: %s",
                *(setting.name, self._topic, type(setting.default).__name__, setting.version, error),
                extra={
                    "remedy": "write a value that fits (ConfigWriter.put), or go back to one (ConfigWriter.rollback)"
                },
            )

    def _find_last_good(self, setting: Setting[Any]) -> None:
        """Looks in the history for the last value that fits, since this process has not seen one itself."""
        try:
            history = read_history(self._options, self._topic, setting.name)
        except TopicRefused as error:
            told = "the last good value of setting %r cannot be looked up: %s"
            log.warning(told, setting.name, error.message, extra={"remedy": error.remedy})
            return
        for each in reversed(history):
            if each.value is None:
                return
            try:
                setting.value, setting.version = setting.parse(each.value), each.version
            except ValidationError:
                continue
            return
