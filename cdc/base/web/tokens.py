"""Reads the file of bearer tokens, and decides which tables the holder of a token may read.

::

    dashboard:
      sha256: 2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b   # printf %s "$TOKEN" | sha256sum
      tables: [public.orders, public.stock_*]
    prometheus:
      token: a-long-random-text
      metrics: true
    partner:
      token: another-long-random-text
      tables: [public.stock]
      watches: 10

Tokens are long random texts, not passwords that people choose, so one round of SHA-256 is enough. The file is read
again when it changes: a token that is removed from it is refused within seconds.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import structlog
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from cdc.base.config import yaml_file
from cdc.base.errors import ConfigError
from cdc.base.web.problem import Headers, Problem

_CHALLENGE: Final = [(b"www-authenticate", b"Bearer")]

log = structlog.get_logger("cdc.web")


class Access:
    """What one caller may read.

    Args:
        name: the token's name; empty if no token is needed.
        tables: patterns of tables, with ``*`` for any characters.
        metrics: whether the caller may read ``/metrics`` as well.
        watches: how many watches one process keeps open for the caller at once; None for the general limit.
    """

    def __init__(self, name: str, tables: Sequence[str], *, metrics: bool, watches: int | None = None) -> None:
        self.name: Final = name
        self.metrics: Final = metrics
        self.watches: Final = watches
        self._all = "*" in tables
        pattern = "|".join(re.escape(each).replace(r"\*", ".*") for each in tables)
        self._is_named = re.compile(pattern).fullmatch if tables else lambda _: None

    def may_read(self, table: str) -> bool:
        """Whether the caller may read this table."""
        return self._all or self._is_named(table) is not None

    def check(self, table: str) -> None:
        """Refuse a table that the caller may not read, without telling whether it exists.

        Raises:
            Problem: ``not-allowed``.
        """
        if not self.may_read(table):
            raise Problem(
                "not-allowed",
                f"The token {self.name} does not name {table}. Add the table to it in serve.tokens_file.",
            )


EVERYTHING: Final = Access("", ("*",), metrics=True)


def _sendable(token: SecretStr) -> SecretStr:
    if not re.fullmatch(r"[!-~]+", token.get_secret_value()):
        raise ValueError("a token may contain only ASCII letters, digits and punctuation, and no blank or line end")
    return token


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    token: Annotated[SecretStr, Field(min_length=16), AfterValidator(_sendable)] | None = None
    sha256: Annotated[str, Field(pattern=r"^[0-9a-fA-F]{64}$")] | None = None
    tables: tuple[str, ...] = ()
    metrics: bool = False
    watches: Annotated[int, Field(ge=0, le=10_000)] | None = None

    @model_validator(mode="after")
    def _check(self) -> _Entry:
        if (self.token is None) == (self.sha256 is None):
            raise ValueError("give either token or sha256")
        return self

    def digest(self) -> bytes:
        if self.token is not None:
            return hashlib.sha256(self.token.get_secret_value().encode()).digest()
        return bytes.fromhex(self.sha256 or "")


_FILE: Final = TypeAdapter(dict[str, _Entry])


class Tokens:
    """The tokens of a file, or, without a file, access for everybody.

    Args:
        path: the file; None lets everybody read everything.
        option: the option that names the file, for messages.

    Raises:
        ConfigError: the file cannot be read, or its content is wrong.
    """

    def __init__(self, path: Path | None, option: str = "serve.tokens_file") -> None:
        self._path = path
        self._option = option
        self._seen = _stamp(path)
        self._by_digest = {} if path is None else read_tokens(path, option)

    @property
    def needed(self) -> bool:
        """Whether callers need a token."""
        return self._path is not None

    def refresh(self) -> None:
        """Read the file again if it changed. If it is wrong, the tokens stay as they were."""
        if self._path is None or (stamp := _stamp(self._path)) == self._seen:
            return
        self._seen = stamp
        try:
            self._by_digest = read_tokens(self._path, self._option)
        except ConfigError as error:
            log.error("cannot read the new tokens; the old ones stay valid", error=error.message, remedy=error.remedy)
        else:
            log.info("read the tokens again", tokens=len(self._by_digest))

    def access(self, headers: Headers) -> Access:
        """Returns the access of the caller with these headers.

        Raises:
            Problem: ``no-token``.
        """
        if self._path is None:
            return EVERYTHING
        given = next((value for name, value in headers if name == b"authorization"), b"")
        scheme, _, token = given.partition(b" ")
        if scheme.lower() != b"bearer" or not token.strip():
            raise Problem("no-token", "Send the header Authorization: Bearer TOKEN.", _CHALLENGE)
        digest = hashlib.sha256(token.strip()).digest()
        found: Access | None = None
        for known, access in self._by_digest.items():  # no early exit, so that the time reveals nothing
            if hmac.compare_digest(known, digest):
                found = access
        if found is None:
            raise Problem("no-token", f"This token is not in {self._option}.", _CHALLENGE)
        return found


def read_tokens(path: Path, option: str) -> Mapping[bytes, Access]:
    """Returns the access for each token, by the token's digest.

    Raises:
        ConfigError: the file is wrong; names the file and the entry, and never shows a token.
    """
    try:
        content, _ = yaml_file.read(path)
        entries = _FILE.validate_python(content)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise ConfigError(
            f"{path}: {wrong}",
            remedy="write a name for each token, and below it token or sha256, tables, and maybe metrics",
        ) from None
    except ConfigError as error:
        is_there = not isinstance(error.__cause__, OSError)
        remedy = error.remedy if is_there else f"let this process read the file, or leave {option} out"
        raise ConfigError(f"{option}: {error.message}", remedy=remedy) from None
    if not entries:
        raise ConfigError(
            f"{option}: {path} has no token, so nobody could read anything",
            remedy="write a name, and below it token or sha256, tables, and maybe metrics",
        )
    found: dict[bytes, Access] = {}
    for name, entry in entries.items():
        if (other := found.get(entry.digest())) is not None:
            raise ConfigError(
                f"{path}: {other.name} and {name} are the same token",
                remedy="give each entry a token of its own, or put all tables into one entry",
            )
        found[entry.digest()] = Access(name, entry.tables, metrics=entry.metrics, watches=entry.watches)
    return found


def _stamp(path: Path | None) -> tuple[int, int] | None:
    try:
        said = None if path is None else path.stat()
    except OSError:
        return None
    return None if said is None else (said.st_mtime_ns, said.st_ino)
