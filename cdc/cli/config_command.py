"""``cdc config``: shows the effective configuration, and what may be written in the file."""

from __future__ import annotations

import json
import os
from typing import Any

import typer
import yaml
from pydantic import BaseModel, SecretStr

from cdc.base.config import Config
from cdc.base.config.environment import origins
from cdc.base.config.masking import MASK, is_secret_key, mask_dsn
from cdc.cli.options import DEFAULT_PATH, ConfigOption, load_config

config_app = typer.Typer(help="Show the effective configuration, or the schema of the file.", no_args_is_help=True)


@config_app.command("show")
def show(config: ConfigOption = None) -> None:
    """Print the effective configuration as YAML: file, environment and defaults together, with secrets masked.

    Examples:

        cdc config show -c shop.yaml

        CDC_TOPICS__PARTITIONS=8 cdc config show
    """
    loaded = load_config(config)
    lines = [f"# {config or DEFAULT_PATH}"]
    lines += [f"# {path} comes from {variable}" for path, variable in origins(os.environ).items()]
    shown = yaml.safe_dump(effective(loaded), sort_keys=False, allow_unicode=True, width=120)
    typer.echo("\n".join(lines) + "\n" + shown, nl=False)


@config_app.command("schema")
def schema() -> None:
    """Print the JSON Schema of the file: every key with its meaning, default and limits. Editors can use it.

    Examples:

        cdc config schema > cdc.schema.json
    """
    document = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Config.model_json_schema()}
    typer.echo(json.dumps(document, indent=2, ensure_ascii=False))


def effective(config: Config) -> dict[str, Any]:
    """Returns the configuration as plain values, secrets masked; what is read from a file is shown as that file."""
    return _plain(config)


def _plain(section: BaseModel) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if name in ("password", "token") and getattr(section, f"{name}_file", None) is not None:
            continue
        shown[field.alias or name] = _value(name, value)
    return shown


def _value(name: str, value: Any) -> Any:
    match value:
        case BaseModel():
            return _plain(value)
        case SecretStr():
            return mask_dsn(value.get_secret_value()) if name == "dsn" else MASK
        case dict():
            return {key: MASK if is_secret_key(key) else _value(key, item) for key, item in value.items()}
        case tuple():
            return list(value)
        case _:
            return value
