"""A deployment that the dashboard of another process shows."""

from __future__ import annotations

import urllib.error
import urllib.request
from typing import Any, Final

import orjson

from cdc.base.errors import CdcError, ConfigError
from cdc.ops.dashboard.recorder import Document

_PATIENCE_S: Final = 10.0
_LARGEST: Final = 16 * 1024 * 1024


class Unreachable(CdcError):
    """A dashboard does not answer, or refuses."""

    exit_code = 4
    retryable = True


class RemoteDeployment:
    """The first deployment that the dashboard at a URL shows.

    Args:
        url: the URL of a daemon's port, or of another ``cdc dashboard``.
        token: the token for it; empty if it needs none.

    Raises:
        ConfigError: the URL is invalid.
    """

    def __init__(self, url: str, token: str) -> None:
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"invalid URL of a dashboard: {url!r}", remedy="write http://host:port")
        self._url = url.rstrip("/")
        self._token = token

    @property
    def name(self) -> str:
        """The URL; the real name comes with the first look."""
        return self._url

    def look(self, *, is_watched: bool) -> Document:  # noqa: ARG002 - the request is the same
        """Returns what the other dashboard shows now.

        Raises:
            Unreachable: it does not answer, or refuses.
        """
        deployments = self._asked("/dashboard/state")["deployments"]
        found: Document = (deployments and deployments[0]) or {"name": self._url, "figures": {}}
        return found

    def ask_key(self, query: str) -> dict[str, Any]:
        """Returns what the other dashboard knows about a key.

        Raises:
            Unreachable: it does not answer, or refuses.
        """
        return self._asked(f"/dashboard/key?{query}")

    def close(self) -> None:
        """Do nothing: no connection is kept open."""

    def _asked(self, path: str) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        try:
            with urllib.request.urlopen(
                urllib.request.Request(self._url + path, headers=headers), timeout=_PATIENCE_S
            ) as answer:
                found: dict[str, Any] = orjson.loads(answer.read(_LARGEST))
                return found
        except urllib.error.HTTPError as error:
            raise Unreachable(f"{self._url} refuses: {_detail(error)}", remedy=_remedy(error.code)) from error
        except (OSError, orjson.JSONDecodeError) as error:
            raise Unreachable(
                f"{self._url} does not answer: {getattr(error, 'reason', error)}",
                remedy="check that the process is running, and that this is the URL of its dashboard",
            ) from error


def _detail(error: urllib.error.HTTPError) -> str:
    try:
        return str(orjson.loads(error.read(_LARGEST)).get("detail", error.reason))
    except (OSError, orjson.JSONDecodeError, AttributeError):
        return str(error.reason)


def _remedy(code: int) -> str:
    if code in (401, 403):
        return "put a token with metrics: true into CDC_DASHBOARD_TOKEN, and start cdc dashboard again"
    return "check that this is the URL of a dashboard"
