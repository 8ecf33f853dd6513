"""Asks the processes of a deployment for their own state: ``/ready`` at each port also tells what they wait for."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from cdc.base.config import Config

Role: TypeAlias = Literal["bridge", "sink", "serve"]
ROLES: Final[Mapping[Role, str]] = {"bridge": "cdc run", "sink": "cdc sink", "serve": "cdc serve"}

_ANYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}
_PATIENCE_S: Final = 3.0
"""How long to wait for an answer. A busy process takes milliseconds, on an overloaded machine a second or two."""
_LARGEST: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class SaidWait:
    """What a process says it is waiting for, and for how long."""

    what: str
    seconds: float
    remedy: str


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """The state of one process.

    Attributes:
        state: answers; hangs: connections time out, or are accepted by the kernel but not answered; silent: nothing
            listens on the port; unasked: the configuration names no port.
        url: the URL of its port.
        is_ready: whether it says that it is ready.
        waits: what it has been waiting for.
        error: the error that makes it retry; empty if there is none.
        remedy: what to do about the error.
    """

    role: Role
    state: Literal["answers", "hangs", "silent", "unasked"]
    url: str = ""
    is_ready: bool = False
    waits: tuple[SaidWait, ...] = ()
    error: str = ""
    remedy: str = ""


def url_of(config: Config, role: Role) -> str | None:
    """Returns the URL where a process can be asked; None if the configuration names no port, or the port uses TLS."""
    host, port = config.http.host, config.http.bridge_port if role == "bridge" else config.http.sink_port
    if role == "serve":
        host, port = config.serve.host, config.serve.port
        if config.serve.tls_cert:
            return None
    if not port:
        return None
    host = _ANYWHERE.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{host}:{port}"


def roles_of(config: Config) -> list[Role]:
    """Returns the processes that the configuration describes."""
    wanted: list[Role] = ["bridge"]
    wanted += ["sink"] if config.sink is not None else []
    wanted += ["serve"] if config.view is not None else []
    return wanted


def ask_ready(config: Config, role: Role) -> ProcessStatus:
    """Ask a process whether it is ready. It raises nothing: that a process does not answer is an answer, too."""
    url = url_of(config, role)
    if url is None:
        return ProcessStatus(role, "unasked")
    try:
        with urllib.request.urlopen(f"{url}/ready", timeout=_PATIENCE_S) as answer:
            return _said(role, url, answer.read(_LARGEST))
    except urllib.error.HTTPError as error:
        with error:
            return _said(role, url, error.read(_LARGEST))
    except OSError as error:
        is_slow = isinstance(error, TimeoutError) or isinstance(getattr(error, "reason", None), TimeoutError)
        return ProcessStatus(role, "hangs" if is_slow else "silent", url)


def _said(role: Role, url: str, body: bytes) -> ProcessStatus:
    try:
        said: dict[str, Any] = json.loads(body)
        waits = tuple(
            SaidWait(str(each["for"]), float(each["seconds"]), str(each["remedy"])) for each in said.get("waits", ())
        )
        is_ready = bool(said.get("ready", True))
    except (ValueError, TypeError, KeyError, AttributeError):
        return ProcessStatus(role, "silent", url)  # another program has the port
    return ProcessStatus(role, "answers", url, is_ready, waits, str(said.get("error", "")), str(said.get("remedy", "")))
