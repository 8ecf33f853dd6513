"""Configuration on a compacted topic: every instance of a service has the same settings, checked, and hears of changes.

A setting is a key of the topic; its value is what a pydantic model says it may be. A value that does not fit stays
outside: it is quarantined, and the last good one stays in force. That one outlives a restart, too: it is looked up in
the history, which ``ConfigWriter`` writes beside the topic.
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
        version: of the setting; 0 when another program than ``ConfigWriter`` wrote it.
        value: as it is in the topic.
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
        """Of ``value``: 0 for the default, or for a value that another program than ``ConfigWriter`` wrote."""
        self.quarantined: Quarantined | None = None
        """The newest value, if it does not fit; ``value`` is the last one that did."""
        self._watchers: list[Callable[[Model, Model], object]] = []

    def watch(self, changed: Callable[[Model, Model], object]) -> Callable[[], None]:
        """Have ``changed(old, new)`` called in ``poll`` and ``load``, once the new value is in force.

        Of several changes in quick succession only the last may be told. Returns what ends the watch.
        """
        self._watchers.append(changed)
        return lambda: self._watchers.remove(changed)

    def calls(self, old: Model) -> list[Callable[[], object]]:
        """What has to be called, now that the value was another one."""
        new = self.value
        return [] if old == new else [partial(told, old, new) for told in self._watchers]

    def parse(self, value: bytes) -> Model:
        """The value as the model has it.

        Raises:
            ValidationError: it does not fit.
        """
        return type(self.default).model_validate_json(value)


class ConfigStore:
    """The settings of a service, in each of its instances.

    Args:
        options: librdkafka settings, ``bootstrap.servers`` among them.
        topic: where the settings are.

    Raises:
        ConfigError: an option is wrong.
        TopicRefused: there is no such topic, or we may not read it.
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
        """Declare a setting, before ``load``. Whatever else is in the topic is of no concern.

        Args:
            name: its key.
            default: its value as long as the topic has none; its class is what values have to fit.

        Raises:
            ConfigError: it is declared already.
        """
        key = name.encode()
        if key in self._settings:
            raise ConfigError(f"setting {name!r} is declared twice", remedy="declare it once, and hand it on")
        declared = self._settings[key] = Setting(name, default)
        return declared

    def load(self) -> None:
        """Read everything that was committed when this was called, and put it in force.

        Raises:
            TopicUnavailable: no broker answers, or an open Kafka transaction hides the end for minutes.
            TopicRefused: the topic is gone.
        """
        self._take(self._reader.load())

    def poll(self, timeout_s: float) -> None:
        """Put in force what is new, and tell watchers; waits for something up to this long. Errors as for ``load``.

        What a watcher raises is raised here. The others are called by the next call then.
        """
        self._take(self._reader.poll(timeout_s))

    def close(self) -> None:
        """Let the brokers go; values stay as they are."""
        self._reader.close()

    def _take(self, changes: Iterable[Change]) -> None:
        before: dict[bytes, Any] = {}
        for change in changes:  # each of them: the last good value may be any
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
                "setting %r of topic %r does not fit %s, and version %d stays in force: %s",
                *(setting.name, self._topic, type(setting.default).__name__, setting.version, error),
                extra={"remedy": "write a value that fits: ConfigWriter.put, or rollback to the last one that did"},
            )

    def _find_last_good(self, setting: Setting[Any]) -> None:
        """This process has seen no value that fits: the one before it may have."""
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
