"""A server that takes a connection and never answers holds up the thread that waits for it, and no other."""

from __future__ import annotations

import socket
import threading
import time
from typing import Final

import pytest

from cdc.base.errors import SourceUnavailable
from cdc.bridge.capture.copy_both import CopyBoth

_PATIENCE_S: Final = 4
_TICK_S: Final = 0.01


def test_other_threads_go_on_while_a_walsender_connects() -> None:
    began = threading.Event()
    refusals: list[SourceUnavailable] = []
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        connection = {"conninfo": f"host=127.0.0.1 port={port} dbname=d user=u connect_timeout={_PATIENCE_S}"}

        def connect() -> None:
            began.set()
            with pytest.raises(SourceUnavailable) as refusal:
                CopyBoth(connection, application_name="test")
            refusals.append(refusal.value)

        thread = threading.Thread(target=connect)
        longest, last = 0.0, time.monotonic()
        thread.start()
        began.wait()
        while thread.is_alive():
            thread.join(_TICK_S)
            now = time.monotonic()
            longest, last = max(longest, now - last), now
    assert "timeout" in refusals[0].message
    assert longest < _PATIENCE_S / 2
