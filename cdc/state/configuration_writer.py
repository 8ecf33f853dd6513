"""The writer of settings: it checks each value, numbers the versions, keeps their history and can roll back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ValidationError

from cdc.base.config import TopicsConfig
from cdc.base.errors import ConfigError, ValueRefused, VersionConflict
from cdc.contract.naming import history_topic as history_of
from cdc.state.configuration_history import ConfigVersion, history_value, read_history, version_header, version_in
from cdc.state.options import client_options
from cdc.state.topics import history_topic, state_topic
from cdc.state.writer import FencedWriter


class ConfigWriter:
    """The one writer of a configuration topic and its history. Each change is one Kafka transaction over both.

    Args:
        options: librdkafka settings, ``bootstrap.servers`` among them.
        topic: the configuration topic, which is compacted.
        models: the model of each setting, by name.
        create: how to create topic and history when they are missing; with None, they must exist. The history is kept
            for ever, unless ``history_retention_ms`` is given.

    Raises:
        ConfigError: an option or a name is invalid.
        TopicRefused: a topic is missing, or has the wrong cleanup policy.
        TopicUnavailable: no broker answers.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        topic: str,
        models: Mapping[str, type[BaseModel]],
        *,
        create: TopicsConfig | None = None,
    ) -> None:
        self._options, self._topic, self._models = client_options(options), topic, dict(models)
        self._history = history_of(topic)
        if create is not None and "history_retention_ms" not in create.model_fields_set:
            create = create.model_copy(update={"history_retention_ms": -1})
        state_topic(self._options, topic, create)
        history_topic(self._options, self._history, create)
        self._writer = FencedWriter(self._options, topic)
        self._versions = {key.decode(): version_in(entry.header) for key, entry in self._writer.entries.now.items()}
        # A deleted setting is in the history only; of another, the history may have expired
        for each in read_history(self._options, topic):
            self._versions[each.name] = max(each.version, self._versions.get(each.name, 0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def version(self, name: str) -> int:
        """Returns the number of the setting's newest version; 0 if it was never changed."""
        return self._versions.get(name, 0)

    def put(self, name: str, value: BaseModel | Mapping[str, Any], *, by: str = "", expected: int | None = None) -> int:
        """Changes a setting and returns its new version. Every instance has the value within moments.

        Args:
            name: the setting's name.
            value: a value that its model accepts; fields that are not given have the model's defaults.
            by: who changes it, for the history.
            expected: the version that the setting must have; None accepts any.

        Raises:
            ConfigError: this setting has no model.
            ValueRefused: the value does not fit the model, or would not come back as it was.
            VersionConflict: the setting has another version.
            FencedError: a second writer of the topic was opened.
            TopicUnavailable: Kafka does not answer. Close the writer and open it again to read back what was written.
        """
        return self._change(name, self._checked(name, value), by, expected)

    def delete(self, name: str, *, by: str = "", expected: int | None = None) -> int:
        """Lets every instance return to the default. Returns the new version. Raises the errors of ``put``."""
        self._model(name)
        return self._change(name, None, by, expected)

    def rollback(self, name: str, version: int, *, by: str = "", expected: int | None = None) -> int:
        """Writes the value of an older version again. This is another change, so it returns a new version.

        Raises:
            ValueRefused: the history has no such version, or its value does not fit today's model.
        """
        found = next((each for each in self.versions(name) if each.version == version), None)
        if found is None:
            known = ", ".join(str(each.version) for each in self.versions(name)) or "none"
            raise ValueRefused(
                f"setting {name!r} has no version {version} in its history", remedy=f"choose one of these: {known}"
            )
        if found.value is None:
            return self.delete(name, by=by, expected=expected)
        try:
            former = self._model(name).model_validate_json(found.value)
        except ValidationError as error:
            raise _misfit(name, error, f"version {version}") from error
        return self.put(name, former, by=by, expected=expected)

    def versions(self, name: str) -> list[ConfigVersion]:
        """Returns the setting's history, oldest version first, as far as Kafka keeps it."""
        return read_history(self._options, self._topic, name)

    def close(self) -> None:
        """Closes the connections."""
        self._writer.close()

    def _change(self, name: str, value: bytes | None, by: str, expected: int | None) -> int:
        version = self.version(name)
        if expected is not None and expected != version:
            raise VersionConflict(
                f"setting {name!r} of topic {self._topic!r} has version {version}, not {expected}",
                remedy="look at its value now, and decide again",
            )
        key = name.encode()
        with self._writer.transaction():
            self._writer.write(key, value, version_header(version + 1))
            self._writer.write_beside(self._history, key, history_value(version + 1, value, by))
        self._versions[name] = version + 1
        return version + 1

    def _checked(self, name: str, value: BaseModel | Mapping[str, Any]) -> bytes:
        model = self._model(name)
        try:
            # Even an instance may hold a value that its model forbids: pydantic checks neither assignments nor
            # model_construct.
            checked = model.model_validate(value.model_dump(by_alias=True) if isinstance(value, BaseModel) else value)
            encoded = checked.model_dump_json(by_alias=True, round_trip=True).encode()
            if model.model_validate_json(encoded) == checked:
                return encoded
        except ValidationError as error:
            raise _misfit(name, error, "the value") from error
        raise ValueRefused(
            f"setting {name!r} would not come back as it was written: JSON or the model hides a part of it",
            remedy="keep secrets out of the topic, and write values that JSON lacks as text",
        )

    def _model(self, name: str) -> type[BaseModel]:
        if name not in self._models:
            raise ConfigError(
                f"setting {name!r} has no model here",
                remedy=f"choose one that has: {', '.join(sorted(self._models)) or 'none has'}",
            )
        return self._models[name]


def _misfit(name: str, error: ValidationError, what: str) -> ValueRefused:
    return ValueRefused(
        f"{what} does not fit setting {name!r}: {error}",
        remedy="correct the fields that are named; nothing was written",
    )
