"""Explains a validation error to the operator: where it is, which key, what was found, and what is allowed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from cdc.base.config.masking import MASK, is_secret_key, mask_dsn
from cdc.base.config.model import Config
from cdc.base.errors import ConfigError

Location = tuple[int | str, ...]


def explain(error: ValidationError, where: Callable[[tuple[str, ...]], str]) -> ConfigError:
    """Returns one ``ConfigError`` with a line for each problem.

    Args:
        error: the error from validating the merged configuration.
        where: returns the place of a key path: ``cdc.yaml, line 3``, or an environment variable.
    """
    lines = []
    for detail in error.errors(include_url=False):
        location = tuple(part for part in detail["loc"] if part != "[key]")
        keys = tuple(part for part in location if isinstance(part, str))
        lines.append(f"{where(keys)}: {_dotted(location)}{_problem(detail, location)}")
    return ConfigError(
        "\n".join(dict.fromkeys(lines)), remedy="`cdc config schema` lists every key, its default and bounds"
    )


def _problem(detail: ErrorDetails, location: Location) -> str:
    match detail["type"]:
        case "missing":
            return f": this key is required{_meaning(location)}"
        case "extra_forbidden":
            return f": unknown key{_suggestion(location)}"
        case "value_error":
            said = str(detail["ctx"]["error"])
        case "model_type" | "dict_type":
            # The value is not shown: a connection string that is here by mistake may contain a password.
            return f": expected keys and values below this key, found {type(detail['input']).__name__}"
        case _:
            said = detail["msg"].replace("Input should be", "should be").replace("String should", "should")
    return f": {said}{_found(detail['input'], location)}" if location else said


def _found(value: Any, location: Location) -> str:
    """Shows the wrong value, unless it is a secret or a whole section, whose parts the message names."""
    if isinstance(value, dict | BaseModel):
        return ""
    if any(isinstance(part, str) and is_secret_key(part) for part in location):
        return f"; found {MASK}"
    if isinstance(value, list):
        return f"; found {[mask_dsn(each) if isinstance(each, str) else each for each in value]}"
    return f"; found {mask_dsn(value)!r}" if isinstance(value, str) else f"; found {value!r}"


def _meaning(location: Location) -> str:
    field = _field(location)
    return f" – {field.description.rstrip('.')}" if field is not None and field.description else ""


def _suggestion(location: Location) -> str:
    key = str(location[-1])
    model = _model_at(location[:-1])
    allowed = _keys(model) if model is not None else []
    elsewhere = [path for path in _all_paths() if path.rpartition(".")[2] == key]
    if near := get_close_matches(key, allowed, 1):
        hint = f'; did you mean "{near[0]}"?'
    elif elsewhere:
        hint = f'; did you mean "{elsewhere[0]}"?'
    else:
        hint = ";"
    return f"{hint} Allowed here: {', '.join(allowed)}"


def _all_paths() -> Iterator[str]:
    for section, field in Config.model_fields.items():
        yield section
        model = _model_of(field)
        yield from (f"{section}.{key}" for key in (_keys(model) if model else ()))


def _keys(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _field(location: Location) -> FieldInfo | None:
    model = _model_at(location[:-1])
    fields: Mapping[str, FieldInfo] = model.model_fields if model is not None else {}
    return next((field for name, field in fields.items() if location[-1] in (field.alias, name)), None)


def _model_at(location: Location) -> type[BaseModel] | None:
    model: type[BaseModel] | None = Config
    for part in location:
        model = _model_of(model.model_fields.get(str(part))) if model is not None else None
    return model


def _model_of(field: FieldInfo | None) -> type[BaseModel] | None:
    if field is None:
        return None
    kind = field.annotation
    options = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return next((option for option in options if isinstance(option, type) and issubclass(option, BaseModel)), None)


def _dotted(location: Location) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return text.removeprefix(".")
