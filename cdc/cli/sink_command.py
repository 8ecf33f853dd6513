"""``cdc sink``: runs the sink until it is told to stop."""

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
        list[str] | None, typer.Argument(help="Tables for --rebuild, as schema.table; all of them by default.")
    ] = None,
    config: ConfigOption = None,
    log_level: LogLevelOption = "info",
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="First replay tables from their topics; without TABLES, all of them.")
    ] = False,
) -> None:
    """Run the sink: compacted topics to replica tables, one consistent cut after another, until SIGTERM or Ctrl-C.

    To rebuild a table, the sink reads its topic from the beginning, overwrites each row of the table, and at the end
    deletes the rows that the topic does not have. The table is `rebuilding` until it is `exact` again; other tables
    continue. An interrupted rebuild continues at the next start, without --rebuild.

    Examples:

        cdc sink -c shop.yaml

        cdc sink --rebuild public.orders -c shop.yaml
    """
    loaded = load_config(config)
    configure(log_level, loaded.secrets())
    if tables and not rebuild:
        raise ConfigError(
            "cdc sink mirrors every table, so names are for --rebuild only",
            remedy="leave the names out, or add --rebuild",
        )
    pages = None if loaded.http.sink_port is None else pages_of("sink", config, loaded)
    run_sink(loaded, stop_on_signals(), RebuildOrder(tables or (), everything=rebuild and not tables), pages)
