"""Reads ``sink.url``, which names a replica that is not on PostgreSQL: a file, or a database on a server."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

_FILES: Final = ("sqlite", "duckdb")
_SERVERS: Final = ("mariadb+pymysql", "mysql+pymysql")
_TLS: Final = ("ssl_ca", "ssl_cert", "ssl_key")
_PORT: Final = 3306
_SHAPE: Final = f"write mariadb+pymysql://user@host:port/database; the port may be left out if it is {_PORT}"


class ServerUrl(NamedTuple):
    """A database on a server.

    Attributes:
        user: who logs in.
        host: the server's name or address.
        port: where it listens.
        database: the database.
        tls: files by parameter; without ``ssl_ca``, the server's certificate is not asked for.
    """

    user: str
    host: str
    port: int
    database: str
    tls: Mapping[str, str]


def check(text: str) -> str:
    """Checks the URL of a replica that is not on PostgreSQL."""
    scheme, _, path = text.partition(":///")
    if scheme == "postgresql":
        raise ValueError("a replica on PostgreSQL is named by dsn")
    if _is_server(text):
        server_of(text)
        return text
    if scheme not in _FILES or not path.strip("/") or "?" in path:
        known = " or ".join(f"{each}:///" for each in _FILES)
        raise ValueError(
            f"write {known} and the path of a file, where an absolute path begins with a slash of its own; or "
            f"{_SERVERS[0]}://user@host/database"
        )
    if path == ":memory:":
        raise ValueError("name a file: what is in memory ends with the process")
    return text


def settled(url: str, directory: Path) -> str:
    """Returns a checked URL whose relative paths start at a directory."""
    if not _is_server(url):
        scheme, _, path = url.partition(":///")
        return f"{scheme}:///{directory / path}"
    place, _, _ = url.partition("?")
    files = {name: str(directory / file) for name, file in server_of(url).tls.items()}
    return f"{place}?{urlencode(files, safe='/')}" if files else place


def file_of(url: str) -> Path | None:
    """Returns the file that a checked URL names; None if the replica is on a server."""
    return None if _is_server(url) else Path(url.partition(":///")[2])


def server_of(url: str) -> ServerUrl:
    """Returns the database on a server that a URL names.

    Raises:
        ValueError: it names none, or has a password.
    """
    if ":" in url.partition("://")[2].rpartition("@")[0]:
        raise ValueError("url must not contain a password; give it as password or password_file")
    try:
        at = urlsplit(url)
        port = _PORT if at.port is None else at.port
    except ValueError:
        raise ValueError(_SHAPE) from None
    database = unquote(at.path[1:])
    if not (at.username and at.hostname and database and port) or re.search(r"[/#\s]", f"{at.path[1:]}{at.fragment}"):
        raise ValueError(_SHAPE)
    parameters = parse_qs(at.query, keep_blank_values=True)
    if any(name not in _TLS or len(values) > 1 for name, values in parameters.items()):
        raise ValueError(f"url takes the parameters {', '.join(_TLS)}, each once, and no others")
    tls = {name: values[0] for name, values in parameters.items()}
    return ServerUrl(unquote(at.username), at.hostname, port, database, tls)


def _is_server(url: str) -> bool:
    return url.partition("://")[0] in _SERVERS
