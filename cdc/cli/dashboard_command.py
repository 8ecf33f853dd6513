"""``cdc dashboard``: shows several deployments on one page."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Annotated, Final

import typer
from prometheus_client import CollectorRegistry

from cdc.base.config import Config
from cdc.base.daemon.http import HealthServer
from cdc.base.daemon.logs import configure, hide
from cdc.base.daemon.pages import Pages
from cdc.base.daemon.supervise import stop_on_signals
from cdc.base.metrics import SlotMetrics
from cdc.bridge.source.slot_meter import SlotMeter
from cdc.bridge.source.slot_watch import slot_watch
from cdc.cli.dashboard_pages import FileAsItIs
from cdc.cli.options import ConfigOption, LogLevelOption, load_config
from cdc.ops.dashboard.opening import overview_pages

_TOKEN: Final = "CDC_DASHBOARD_TOKEN"
_ELSEWHERE: Final = "choose another with --port or --host; --port 0 picks a free port"


def dashboard(
    targets: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TARGET]...", help="Configuration files and URLs of dashboards; -c by default."),
    ] = None,
    config: ConfigOption = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 picks a free one.")] = 8070,
    tokens_file: Annotated[
        Path | None,
        typer.Option(
            help="Bearer tokens of people who may look; required unless --host is a loopback address.", metavar="PATH"
        ),
    ] = None,
    log_level: LogLevelOption = "info",
) -> None:
    """Show deployments in the browser, each as cdc status and cdc check see it, until SIGTERM or Ctrl-C.

    For a configuration file, this process asks the servers itself. A URL names a daemon's port or another dashboard; if
    it needs a token, put the token into the environment variable CDC_DASHBOARD_TOKEN.

    Examples:

        cdc dashboard -c shop.yaml

        cdc dashboard shop.yaml billing.yaml http://10.0.0.7:9187 --port 8071
    """
    token = os.environ.get(_TOKEN, "")
    read = [each if "://" in each else _file(Path(each)) for each in targets or ()] or [_file(config)]
    secrets = [secret for each in read if not isinstance(each, str) for secret in each().secrets()]
    configure(log_level, [*secrets, *filter(None, [token])])
    hide([*secrets, *filter(None, [token])])
    stop = stop_on_signals()

    def pages(_: CollectorRegistry) -> AbstractContextManager[Pages]:
        return overview_pages(read, token, host, tokens_file)

    registry = CollectorRegistry()
    slots = SlotMetrics(registry, ["bridge"])
    with ExitStack() as beside:
        for config_now in {each().name: each() for each in read if not isinstance(each, str)}.values():
            beside.enter_context(slot_watch(config_now, SlotMeter(slots, config_now.name), stop))
        beside.enter_context(HealthServer(host, port, registry, lambda: (True, {}), stop, pages, elsewhere=_ELSEWHERE))
        stop.wait()


def _file(path: Path | None) -> Callable[[], Config]:
    return FileAsItIs(path, load_config(path))
