"""``cdc run``: runs the bridge until it is told to stop."""

from __future__ import annotations

from cdc.base.daemon.logs import configure
from cdc.base.daemon.supervise import hangups, stop_on_signals
from cdc.bridge.run import run_bridge
from cdc.cli.dashboard_pages import pages_of
from cdc.cli.options import ConfigOption, LogLevelOption, load_again, load_config


def run(config: ConfigOption = None, log_level: LogLevelOption = "info") -> None:
    """Run the bridge: PostgreSQL's row changes to compacted topics, until SIGTERM or Ctrl-C.

    On SIGHUP, the bridge reads the file again, for changes of source.tables, source.exclude, source.keys and
    topics.names.

    Examples:

        cdc run -c shop.yaml

        CDC_SOURCE__PASSWORD=… cdc run -c shop.yaml --log-level debug
    """
    loaded = load_config(config)
    configure(log_level, loaded.secrets())
    pages = None if loaded.http.bridge_port is None else pages_of("bridge", config, loaded)
    run_bridge(loaded, stop_on_signals(), hangups(), lambda: load_again(config), pages)
