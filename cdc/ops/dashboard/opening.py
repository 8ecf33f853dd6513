"""Puts the dashboard together, in a daemon for its own deployment, or in ``cdc dashboard`` for several."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import urlencode

from prometheus_client import CollectorRegistry

from cdc.base.config import Config
from cdc.base.daemon.pages import Pages
from cdc.base.web.problem import Problem, sentences
from cdc.ops.dashboard.board import Board
from cdc.ops.dashboard.door import Door
from cdc.ops.dashboard.inspecting import Inspector
from cdc.ops.dashboard.numbers import Sample, of_registry, of_text
from cdc.ops.dashboard.pages import DashboardPages, Inspect
from cdc.ops.dashboard.processes import Own
from cdc.ops.dashboard.recorder import Deployment, Document
from cdc.ops.dashboard.remote import RemoteDeployment, Unreachable
from cdc.ops.status.processes import Role

Read: TypeAlias = Callable[[], Config]


@contextmanager
def daemon_pages(read: Read, role: Role, registry: CollectorRegistry) -> Generator[Pages, None, None]:
    """The pages of ``cdc run`` and ``cdc sink``, while the block lasts.

    Args:
        read: returns the current configuration.
        role: which daemon this process is.
        registry: the metrics of this process.

    Raises:
        ConfigError: the tokens file is invalid.
    """
    http = read().http
    door = Door(http.host, http.tokens_file, "http.tokens_file")
    with _shown(door, [read], [_WhenLooked(read, Own(role, partial(of_registry, registry)))]) as pages:
        yield pages


@contextmanager
def service_pages(config: Config, metrics: Callable[[], bytes]) -> Generator[Pages, None, None]:
    """The pages of one process of ``cdc serve``, while the block lasts.

    With several workers, each would look for itself. So none of them looks before somebody watches.

    Args:
        config: the deployment's configuration.
        metrics: returns what ``/metrics`` shows.

    Raises:
        ConfigError: the tokens file is invalid.
    """

    def counted() -> Iterable[Sample]:
        return of_text(metrics().decode())

    serve = config.serve
    door = Door(serve.host, serve.tokens_file, "serve.tokens_file")
    deployments = [_WhenLooked(lambda: config, Own("serve", counted))]
    with _shown(door, [lambda: config], deployments, is_eager=serve.workers == 1) as pages:
        yield pages


@contextmanager
def overview_pages(
    targets: Sequence[Read | str], token: str, host: str, tokens_file: Path | None
) -> Generator[Pages, None, None]:
    """The pages of ``cdc dashboard``, while the block lasts.

    Args:
        targets: functions that return a configuration, or URLs of dashboards.
        token: the token for these dashboards.
        host: the address to listen on.
        tokens_file: the tokens of the people who may look.

    Raises:
        ConfigError: a URL or the tokens file is invalid.
    """
    door = Door(host, None if tokens_file is None else str(tokens_file), "--tokens-file")
    deployments: list[Deployment] = [
        RemoteDeployment(each, token) if isinstance(each, str) else _WhenLooked(each, None) for each in targets
    ]
    reads = [None if isinstance(each, str) else each for each in targets]
    with _shown(door, reads, deployments) as pages:
        yield pages


class _WhenLooked:
    """A ``ConfiguredDeployment`` that imports its modules at the first look.

    Args:
        read: returns the current configuration.
        own: this process, if it belongs to the deployment.
    """

    def __init__(self, read: Read, own: Own | None) -> None:
        self.name: Final = read().name
        self._read = read
        self._own = own
        self._deployment: Deployment | None = None

    def look(self, *, is_watched: bool) -> Document:
        """Look, as ``Deployment.look`` says."""
        if self._deployment is None:
            from cdc.ops.dashboard.deployment import (
                ConfiguredDeployment,  # takes 0.4 s of CPU, which would delay the daemon's start
            )

            path = getattr(self._read, "path", None)  # cdc serve gets a configuration, and does not know the file
            self._deployment = ConfiguredDeployment(self._read, self._own, path)
        return self._deployment.look(is_watched=is_watched)

    def close(self) -> None:
        """Close the connections, if there was a look."""
        if self._deployment is not None:
            self._deployment.close()


@contextmanager
def _shown(
    door: Door, reads: Sequence[Read | None], deployments: Sequence[Deployment], *, is_eager: bool = True
) -> Generator[Pages, None, None]:
    board = Board(deployments, is_eager=is_eager)
    board.start()
    try:
        yield DashboardPages(board, door, _inspector(reads, deployments))
    finally:
        board.close()


def _inspector(reads: Sequence[Read | None], deployments: Sequence[Deployment]) -> Inspect:
    inspector = Inspector()

    def inspect(number: int, table: str, key: str) -> dict[str, Any]:
        read, deployment = reads[number], deployments[number]
        if read is not None:
            return inspector.look_up(read(), table, key)
        assert isinstance(deployment, RemoteDeployment)
        try:
            return deployment.ask_key(urlencode({"deployment": 0, "table": table, "key": key}))
        except Unreachable as error:
            raise Problem("store-away", sentences(error.message, error.remedy)) from None

    return inspect
