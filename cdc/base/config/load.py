"""Loads ``Config`` from the configuration file and the environment. Only commands call it; imports read nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from cdc.base.config import environment, unread, yaml_file
from cdc.base.config.explain import explain
from cdc.base.config.model import Config

_SECRETS = (("password", "password_file"), ("token", "token_file"), ("salt", "salt_file"))


def load(path: Path | None, environ: Mapping[str, str]) -> Config:
    """Read the file, merge ``CDC_…`` variables into it, and check everything.

    Args:
        path: the YAML file; None if the environment says everything.
        environ: the process's environment, or a test's.

    Raises:
        ConfigError: lists all problems, each with its place; never shows a secret.
    """
    content, lines = yaml_file.read(path) if path is not None else ({}, {})

    def where(keys: tuple[str, ...]) -> str:
        for length in range(len(keys), 0, -1):
            if line := lines.get(keys[:length]):
                return f"{path}, line {line}"
        return str(path) if path is not None else "environment"

    return checked(content, environ, where, path.parent if path is not None else Path())


def checked(
    content: dict[str, Any], environ: Mapping[str, str], where: Callable[[tuple[str, ...]], str], directory: Path
) -> Config:
    """Merge ``CDC_…`` variables into the content of a file, and check everything.

    Args:
        content: the content of a file, which need not exist.
        environ: as for ``load``.
        where: returns the place of a key path in the content, for people.
        directory: the file's directory, at which relative paths start.

    Raises:
        ConfigError: as for ``load``.
    """
    unread.refuse_misspelt(environ)
    merged = _lay_over(content, environment.overrides(environ))
    origins = environment.origins(environ)

    def place(keys: tuple[str, ...]) -> str:
        for length in range(len(keys), 0, -1):
            if variable := origins.get(".".join(keys[:length])):
                return f"environment variable {variable}"
        if keys and keys[0] not in content:
            # The section comes from variables alone, so the file cannot be at fault.
            section = f"{keys[0]}."
            if variable := next((each for path, each in origins.items() if path.startswith(section)), None):
                return f"environment variable {variable}"
        return where(keys)

    try:
        return Config.model_validate(merged, context={"directory": directory})
    except ValidationError as error:
        # "from None": the error's text and cause contain the input, passwords included.
        raise explain(error, place) from None


def _lay_over(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge mappings; ``above`` wins, and a password in it replaces a password or a password_file in ``below``, a token
    likewise."""
    merged = dict(below)
    for places in _SECRETS:
        if any(key in above for key in places):
            merged = {key: value for key, value in merged.items() if key not in places}
    for key, value in above.items():
        known = merged.get(key)
        merged[key] = _lay_over(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return merged
