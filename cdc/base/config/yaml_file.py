"""Reads a YAML file with the line of every key, so that an error can name its place."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

import yaml

from cdc.base.errors import ConfigError

KeyPath: TypeAlias = tuple[str, ...]

_NOT_READ: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""The exceptions that Python raises for a date that does not exist, or for a number without digits."""


class _Loader(yaml.SafeLoader):
    """Reports the line of a value that looks like a date or a number but is not one: ``2026-02-30``."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except _NOT_READ:
            # "from None": Python's text quotes the value, which may be a password
            raise yaml.constructor.ConstructorError(None, None, _NO_SUCH_VALUE, node.start_mark) from None


_NO_SUCH_VALUE: Final = "this value looks like a date or a number, but there is no such date or number"


def read(path: Path) -> tuple[dict[str, Any], dict[KeyPath, int]]:
    """Returns the file's content, and the line number (from 1) of each key path.

    Raises:
        ConfigError: the file does not exist, is not YAML or not a mapping, or has a key twice.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigError(
            f"{path}: there is no such file",
            remedy=f"cdc init -c {shlex.quote(str(path))} writes one; or name another with -c PATH or CDC_CONFIG",
        ) from error
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot read the configuration file: {error.strerror}",
            remedy="let this user read it, or name another with -c PATH or CDC_CONFIG",
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text (byte {error.start})", remedy="save the file as UTF-8") from None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        lines = dict(_lines(path, node, ()))
        content = {} if node is None else loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        # "from None": the mark's snippet quotes the line, which may contain a password.
        raise ConfigError(f"{path}, line {line}: not valid YAML: {error.problem}", remedy=_remedy(error)) from None
    except RecursionError:
        raise ConfigError(
            f"{path}: not valid YAML: it contains itself",
            remedy="remove the alias (*name) that is inside the value it refers to (&name)",
        ) from None
    except yaml.YAMLError:
        raise ConfigError(
            f"{path}: not valid YAML: it contains a character that YAML does not allow",
            remedy="remove control characters; to write one in a value, use double quotes and an escape such as \\x07",
        ) from None
    if not isinstance(content, dict):
        found = type(content).__name__
        raise ConfigError(
            f"{path}: expected keys such as name, source and kafka at the top, found {found}",
            remedy="write `name: …`, `source: …` and `kafka: …` at the top, or let `cdc init` write the file",
        )
    return content, lines


def _remedy(error: yaml.MarkedYAMLError) -> str:
    problem = str(error.problem)
    if "alias" in f"{error.context} {problem}":
        return "put a pattern that begins with * in quotes: '*.orders'; in YAML, a bare * refers to an earlier value"
    if "'\\t'" in problem:
        return "indent with spaces: YAML does not allow a tab there"
    if problem == _NO_SUCH_VALUE:
        return "put the value in quotes if it is text"
    return "check this line and the one before: close brackets and quotes, and put text with : # [ { ! in quotes"


def _lines(path: Path, node: yaml.Node | None, above: KeyPath) -> Iterator[tuple[KeyPath, int]]:
    if not isinstance(node, yaml.MappingNode):
        return
    seen: dict[str, int] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        name = str(key.value)
        if name in seen:
            raise ConfigError(
                f"{path}, line {line}: {'.'.join((*above, name))} is given a second time (first on line {seen[name]})",
                remedy="keep one of the two",
            )
        seen[name] = line
        yield (*above, name), line
        yield from _lines(path, value, (*above, name))
