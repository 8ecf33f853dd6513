"""``cdc sink``: the sink until it is told to stop."""

from __future__ import annotations

from cdc.app.logs import configure
from cdc.app.options import ConfigOption, LogLevelOption, load_config
from cdc.app.sink_run import run_sink
from cdc.app.supervise import stop_on_signals


def sink(config: ConfigOption = None, log_level: LogLevelOption = "info") -> None:
    """Run the sink: compacted topics to replica tables, one consistent cut after another, until SIGTERM or Ctrl-C.

    Examples:

        cdc sink -c shop.yaml

        CDC_SINK__PASSWORD=… cdc sink -c shop.yaml
    """
    loaded = load_config(config)
    configure(log_level, loaded.secrets())
    run_sink(loaded, stop_on_signals())
