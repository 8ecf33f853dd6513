"""``cdc serve``: serves the tables of a view over HTTP."""

from __future__ import annotations

from typing import Annotated

import typer

from cdc.base.daemon.logs import configure
from cdc.base.daemon.supervise import stop_on_signals
from cdc.base.extras import require
from cdc.cli.options import ConfigOption, LogLevelOption, load_config


def serve(
    config: ConfigOption = None,
    log_level: LogLevelOption = "info",
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Overrides serve.port; 0 picks a free port.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, max=64, help="Overrides serve.workers.")] = None,
    feed: Annotated[
        bool,
        typer.Option(
            "--feed/--no-feed", help="Fill the view as well, or only answer from a view that another service fills."
        ),
    ] = True,
) -> None:
    """Keep topics as tables, and answer questions about them over HTTP, until SIGTERM or Ctrl-C.

    Several services may share one view. One of them fills it, and another takes over when that one ends. All of them
    answer.

    Examples:

        cdc serve -c shop.yaml

        cdc serve -c shop.yaml --port 8091 --workers 4

        cdc serve -c shop.yaml --no-feed
    """
    require("view", "cdc serve")
    from cdc.ops.dashboard.opening import service_pages
    from cdc.views.http.run import run_service  # not at the top: its libraries come with the extra

    loaded = load_config(config)
    configure(log_level, loaded.secrets())
    given = {"port": port, "workers": workers}
    settings = loaded.serve.model_copy(update={name: value for name, value in given.items() if value is not None})
    run_service(
        loaded.model_copy(update={"serve": settings}),
        stop_on_signals(),
        log_level,
        feeds=feed,
        open_pages=service_pages,
    )
