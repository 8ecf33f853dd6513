"""``cdc run``: the bridge as a process, with its signals, metrics and retries."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable

import structlog

from cdc.base.config import Config
from cdc.base.daemon.pages import OpenPages
from cdc.base.daemon.supervise import supervise
from cdc.base.daemon.wait_log import WaitLog
from cdc.base.errors import TakenOver
from cdc.bridge.decoding import Decoding
from cdc.bridge.metering import BridgeMeter
from cdc.bridge.order.counts import CountsByTable
from cdc.bridge.scope_watch import ScopeWatch
from cdc.bridge.session import BridgeSession, Fencings, KeptByProcess
from cdc.bridge.source.slot_watch import SlotWatch
from cdc.contract.naming import progress_topic
from cdc.kafka.registry import require_client
from cdc.kafka.replay.pulse import BrokerPulse

_ALLOCATIONS_PER_COLLECTION = 200_000

log = structlog.get_logger("cdc.bridge")


def run_bridge(
    config: Config,
    stop: threading.Event,
    hangup: threading.Event,
    read: Callable[[], Config],
    pages: OpenPages | None = None,
) -> None:
    """Run the bridge until ``stop`` is set.

    Args:
        config: the configuration to begin with.
        stop: set by SIGTERM and Ctrl-C.
        hangup: set by SIGHUP: the configuration file is to be read again.
        read: reads the configuration.
        pages: what ``http.bridge_port`` shows beside metrics and probes.

    Raises:
        CdcError: an operator has to act.
    """
    if config.registry is not None:  # said at once, not once source and brokers answer
        require_client()
    # Messages and rows form no cycles and die young; looking for cycles among them took a twentieth of the CPU
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS_PER_COLLECTION)
    counts = CountsByTable()
    decoding = Decoding(config.source.slot, streaming=config.source.streaming)
    kept = KeptByProcess(counts, decoding, Fencings())
    with (
        BridgeMeter(config.http, counts, stop, pages) as meter,
        WaitLog(stop),
        BrokerPulse(config.kafka.client_options(), progress_topic(config.name), stop),
        SlotWatch(config, lambda seen: meter.slot(None if seen is None else seen.slot), stop),
        ScopeWatch(config, read, hangup, stop) as scope,
    ):

        def session(works: Callable[[], None]) -> None:
            try:
                BridgeSession(scope.config, scope, works, meter, kept).run()
            except TakenOver as error:
                # The session keeps no state, so the process need not end: the next attempt waits, and fences nobody
                log.info("another bridge took over: this one waits", reason=error.message)

        supervise(session, stop, meter.retried)
    log.info("stopped", changes=sum(each.changes for each in counts.values()))
