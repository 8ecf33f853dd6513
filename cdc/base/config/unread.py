"""Finds environment variables that look like this project's and that nothing reads.

``CDC_TOPICS_PARTITIONS``, with one underscore too few, would be ignored, and topics would get another number of
partitions for ever. So a name that differs from a key only in its underscores is refused, and any other one is logged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Final, get_args

from pydantic import BaseModel

from cdc.base.config.environment import DELIMITER, PREFIX, origins
from cdc.base.config.model import Config
from cdc.base.errors import ConfigError

READ_ELSEWHERE: Final = frozenset(
    {
        "CDC_CACHE_DIR",
        "CDC_CONFIG",
        "CDC_CRASHPOINT",
        "CDC_DASHBOARD_TOKEN",
        "CDC_JOB_PARENT",
        "CDC_KAFKA",
        "CDC_LOG_LEVEL",
        "CDC_PG_URL",
        "CDC_PURE_PYTHON",
        "CDC_REDIS_URL",
        "CDC_REGISTRY_URL",
    }
)
"""Variables that are not keys of the configuration, but are read elsewhere."""
_OF_TESTS: Final = "CDC_TEST"
_SERVICE_LINK: Final = re.compile(r"_SERVICE_HOST|_SERVICE_PORT(_.+)?|_PORT_\d+_(TCP|UDP|SCTP)(_.+)?")
"""Kubernetes sets these in every container in the namespace of a service, which may be called ``cdc-serve``:
https://kubernetes.io/docs/tutorials/services/connect-applications-service/#environment-variables"""


def refuse_misspelt(environ: Mapping[str, str]) -> None:
    """Refuse a variable that differs from a key of the configuration only in its underscores.

    Raises:
        ConfigError: there is one; names the right spelling. It is not raised if the right variable is set as well.
    """
    there = {variable.upper() for variable in origins(environ).values()}
    for variable in _unread(environ):
        right = _KEYS.get(_plain(variable))
        if right is not None and right not in there:
            raise ConfigError(
                f"environment variable {variable}: cdc does not read it, because a section and its key are separated "
                f"by two underscores: {right}",
                remedy=f"rename it to {right}, or unset it",
            )


def warnings(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each variable that nothing reads, without its value, which may be a secret."""
    known = {*_KEYS.values(), *READ_ELSEWHERE}
    for variable in _unread(environ):
        near = _KEYS.get(_plain(variable)) or next(iter(get_close_matches(variable.upper(), known, 1, 0.85)), None)
        yield f"environment variable {variable}: cdc reads no variable of this name" + (
            f"; did you mean {near}?" if near else ""
        )


def _unread(environ: Mapping[str, str]) -> list[str]:
    read = {*origins(environ).values()}
    return [each for each in sorted(environ) if environ[each] and each not in read and _is_ours(each, environ[each])]


def _is_ours(variable: str, value: str) -> bool:
    name = variable.upper()
    if not name.startswith(PREFIX) or name in READ_ELSEWHERE or name.startswith(_OF_TESTS):
        return False
    return not (_SERVICE_LINK.search(name) or (name.endswith("_PORT") and "://" in value))


def _keys(model: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        variable = prefix + (field.alias or name).upper()
        inner = [each for each in (field.annotation, *get_args(field.annotation)) if _is_section(each)]
        if inner:
            yield from _keys(inner[0], variable + DELIMITER)
        else:
            yield variable


def _is_section(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _plain(variable: str) -> str:
    return variable.upper().replace("_", "")


_KEYS: Final = {_plain(variable): variable for variable in _keys(Config, PREFIX)}
"""The variable of each key, by its name without underscores."""
