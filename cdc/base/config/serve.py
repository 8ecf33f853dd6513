"""The section ``serve``: where ``cdc serve`` listens, who may read, and how much load it accepts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, model_validator

from cdc.base.config import checks

_STRICT = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, hide_input_in_errors=True)
_OWN_PAGES = ("v1", "live", "ready", "metrics", "openapi.json", "dashboard")


def _alias(path: str) -> str:
    if not re.fullmatch(r"(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+", path):
        raise ValueError(
            "write a path such as /users: letters, digits, dots, underscores, hyphens, and no / at the end"
        )
    if (first := path.split("/")[1]) in _OWN_PAGES:
        raise ValueError(f"/{first} is a page of the service itself; choose another path")
    return path


def _origin(text: str) -> str:
    if not re.fullmatch(r"https?://[^/\s*]+", text):
        raise ValueError("write scheme and host, for instance https://shop.example")
    return text


_Int: TypeAlias = Annotated[int, BeforeValidator(checks.number)]
_Float: TypeAlias = Annotated[float, BeforeValidator(checks.number)]
_Origins: TypeAlias = Annotated[tuple[Annotated[str, AfterValidator(_origin)], ...], BeforeValidator(checks.split_list)]


class ServeConfig(BaseModel):
    """The HTTP service of the view."""

    model_config = _STRICT

    host: Annotated[str, AfterValidator(checks.present)] = "127.0.0.1"
    """Address to listen on; only this machine by default, because without tokens_file there is no login."""
    port: _Int = Field(default=8090, ge=0, le=65535)
    """Port; 0 picks a free one and logs it. 8090 by default, because no other server of this project uses it."""
    workers: _Int = Field(default=1, ge=1, le=64)
    """Number of processes that answer. One keeps a core busy with some thousand lookups a second; the feed has its own
    core. A store in memory can have only one."""
    tokens_file: str | None = None
    """YAML file of bearer tokens and the tables that each may read; a relative path starts at the configuration file.
    By default, everybody who reaches the port may read everything."""
    tls_cert: str | None = None
    """PEM file of the server's certificate and its chain; with it and tls_key, the service speaks only HTTPS."""
    tls_key: str | None = None
    """PEM file of the certificate's key."""
    cors_origins: _Origins = ()
    """Origins whose pages may send requests from a browser, such as https://shop.example; none by default."""
    aliases: dict[Annotated[str, AfterValidator(_alias)], Annotated[str, AfterValidator(checks.present)]] = Field(
        default_factory=dict
    )
    """Short paths by table: /users: public.users answers GET /users and GET /users/{id}."""
    request_timeout_s: _Float = Field(default=10.0, ge=1, le=300)
    """Seconds that a request may take, including the wait for min_lsn and reading a history. 10, because a person who
    waits gives up then."""
    max_watches: _Int = Field(default=256, ge=0, le=10_000)
    """Watches that a process keeps open at once. Each takes a socket, and up to 1 MiB that its client has not read."""

    @model_validator(mode="after")
    def _check(self, info: ValidationInfo) -> ServeConfig:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("give tls_cert and tls_key, or neither: a server needs a certificate and its key")
        directory = Path((info.context or {}).get("directory", ""))
        for name in ("tokens_file", "tls_cert", "tls_key"):
            if (given := getattr(self, name)) is not None:
                object.__setattr__(self, name, str(directory / given))
        return self

    def table_of(self) -> Mapping[str, str]:
        """Returns the table of each alias, longest alias first, so that /users/vip is not taken for a row of /users."""
        return dict(sorted(self.aliases.items(), key=lambda pair: -len(pair[0])))
