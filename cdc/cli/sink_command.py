"""``cdc sink``: the sink until it is told to stop."""

from __future__ import annotations

from typing import Annotated

import typer

from cdc.base.daemon.logs import configure
from cdc.base.daemon.supervise import stop_on_signals
from cdc.base.errors import ConfigError
from cdc.cli.dashboard_pages import pages_of
from cdc.cli.options import ConfigOption, LogLevelOption, load_config
from cdc.sink.apply.run import run_sink
from cdc.sink.apply.topics import RebuildOrder


def sink(
    tables: Annotated[
        list[str] | None, typer.Argument(help="Tables for --rebuild, as schema.table; all of them unless given.")
    ] = None,
    config: ConfigOption = None,
    log_level: LogLevelOption = "info",
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Replay tables from their topics first; without TABLES, all of them.")
    ] = False,
) -> None:
    """Run the sink: compacted topics to replica tables, one consistent cut after another, until SIGTERM or Ctrl-C.

    A table that is rebuilt is read from the beginning of its topic, over the rows that it holds. Rows that the topic
    does not have are deleted at the end. The table says `rebuilding` until it is `exact` again; other tables go on. A
    rebuild that is interrupted goes on at the next start, without --rebuild.

    Examples:

        cdc sink -c shop.yaml

        cdc sink --rebuild public.orders -c shop.yaml
    """
    loaded = load_config(config)
    configure(log_level, loaded.secrets())
    if tables and not rebuild:
        raise ConfigError("cdc sink mirrors every table", remedy="leave the names out, or add --rebuild")
    pages = None if loaded.http.sink_port is None else pages_of("sink", config, loaded)
    run_sink(loaded, stop_on_signals(), RebuildOrder(tables or (), everything=rebuild and not tables), pages)
