"""``cdc run``: the bridge as a process, with its signals, its metrics and its retries."""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from cdc.app.metering import BridgeMeter
from cdc.app.session import BridgeSession
from cdc.app.supervise import supervise
from cdc.app.translate import Counts
from cdc.config import Config

log = structlog.get_logger("cdc.bridge")


def run_bridge(config: Config, stop: threading.Event) -> None:
    """Run the bridge until ``stop`` is set.

    Raises:
        CdcError: the operator must act, or another bridge took over.
    """
    counts = Counts()
    with BridgeMeter(config.http, counts) as meter:

        def session(works: Callable[[], None]) -> None:
            BridgeSession(config, stop, works, meter, counts).run()

        supervise(session, stop, meter.retried)
    log.info("stopped", changes=sum(each.changes for each in counts.values()))
