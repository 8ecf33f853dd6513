"""Reads overrides from the environment: ``CDC_SOURCE__DSN`` is ``source.dsn``; two underscores go one level down.

A variable cannot hold a whole section, because names such as ``CDC_KAFKA`` have other meanings elsewhere.
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
"""The keys outside of all sections."""


class _Settings(BaseSettings, Config):
    """Describes the fields to ``EnvSettingsSource``. No instance is made: that would read the process's environment."""

    # An empty variable counts as unset, because container tools pass on variables that nobody set.
    # The validation is not built, which would take every command a tenth of a second.
    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter=DELIMITER, env_ignore_empty=True, defer_build=True
    )


class _Overrides(EnvSettingsSource):
    """Reads a given mapping instead of the process's environment, and accepts lists as ``a,b``."""

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
    """Returns the overrides as nested mappings, to be merged into the file's content.

    Raises:
        ConfigError: a variable names no section, or holds invalid JSON.
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
        # "from None": the cause contains the variable's text, which may be a secret.
        raise ConfigError(
            f"an environment variable {PREFIX}{field.upper()}{DELIMITER}… is not valid JSON{detail}",
            remedy='write {"key": "value"} for mappings, ["a","b"] or a,b for lists',
        ) from None


def origins(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment variable that sets each key path, for example ``CDC_SOURCE__DSN`` for ``source.dsn``."""
    found = {}
    for variable in sorted(environ):
        name = variable.upper()
        if environ[variable] and name.startswith(PREFIX):
            path = name.removeprefix(PREFIX).lower().split(DELIMITER)
            if len(path) > 1 or path[0] in _PLAIN:
                found[".".join(path)] = variable
    return found
