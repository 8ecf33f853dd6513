"""Overrides from the environment: ``CDC_SOURCE__DSN`` is ``source.dsn``; two underscores go one level down.

A section as a whole cannot be given: names such as ``CDC_KAFKA`` mean other things elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict, SettingsError

from cdc.base.config.model import Config
from cdc.base.errors import ConfigError

PREFIX = "CDC_"
DELIMITER = "__"
_PLAIN = ("name", "delivery")
"""The keys that stand in no section."""


class _Settings(BaseSettings, Config):
    """Only describes the fields to ``EnvSettingsSource``; never made, as that would read this process's environment."""

    # An empty variable counts as unset: container tools pass on variables that nobody set.
    # Nor is its validation built, which would take a tenth of a second of every command.
    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter=DELIMITER, env_ignore_empty=True, defer_build=True
    )


class _Overrides(EnvSettingsSource):
    """Reads a given mapping instead of the process's environment, and lists also as ``a,b``."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        super().__init__(_Settings)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return {variable.lower(): self._environ[variable] for variable in origins(self._environ).values()}

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:  # noqa: ARG002 - overrides
        if isinstance(value, str) and not value.lstrip().startswith(("[", "{")):
            return value
        return json.loads(value)


def overrides(environ: Mapping[str, str]) -> dict[str, Any]:
    """The overrides as nested mappings, to be laid over the file.

    Raises:
        ConfigError: a variable names no section, or holds broken JSON.
    """
    for path, variable in origins(environ).items():
        section = path.partition(".")[0]
        if section not in Config.model_fields:
            near = get_close_matches(section, Config.model_fields, 1)
            raise ConfigError(
                f"environment variable {variable}: there is no section {section!r}"
                + (f"; did you mean {PREFIX}{near[0].upper()}{DELIMITER}…?" if near else "")
                + f" Sections: {', '.join(Config.model_fields)}",
                remedy=f"unset {variable}, or correct its name",
            )
    try:
        return dict(_Overrides(environ)())
    except SettingsError as error:
        field = str(error).partition('"')[2].partition('"')[0]
        cause = error.__cause__
        detail = f": {cause.msg} at character {cause.pos}" if isinstance(cause, json.JSONDecodeError) else ""
        # The cause carries the variable's text, which may be a secret.
        raise ConfigError(
            f"an environment variable {PREFIX}{field.upper()}{DELIMITER}… is not valid JSON{detail}",
            remedy='write {"key": "value"} for mappings, ["a","b"] or a,b for lists',
        ) from None


def origins(environ: Mapping[str, str]) -> dict[str, str]:
    """Key path → environment variable that sets it, e.g. ``source.dsn`` → ``CDC_SOURCE__DSN``."""
    found = {}
    for variable in sorted(environ):
        name = variable.upper()
        if environ[variable] and name.startswith(PREFIX):
            path = name.removeprefix(PREFIX).lower().split(DELIMITER)
            if len(path) > 1 or path[0] in _PLAIN:
                found[".".join(path)] = variable
    return found
