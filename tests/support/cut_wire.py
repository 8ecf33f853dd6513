"""A wire to a server that a test can cut: what is sent vanishes, and neither side is told."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from typing import Final, Self

_CHUNK: Final = 1 << 16
_POLL_S: Final = 0.05


class Wire:
    """Listens on a port of its own, and hands on what it hears, while the ``with`` block lasts.

    Args:
        host, port: of the server.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._cut = threading.Event()
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="wire", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join()
        self._drop_all()
        self._listener.close()
        self._selector.close()

    def cut(self) -> None:
        """Hand on nothing from now on; connections stay, and new ones are taken and not answered."""
        with self._lock:
            self._cut.set()

    def mend(self) -> None:
        """Hand on again; connections from before are reset, as by a firewall that has forgotten them."""
        with self._lock:
            self._drop_all()
            self._cut.clear()

    def _run(self) -> None:
        while not self._over.is_set():
            if self._cut.is_set():
                self._over.wait(_POLL_S)
                continue
            events = self._selector.select(_POLL_S)
            with self._lock:
                if self._cut.is_set():
                    continue
                for key, _ in events:
                    if key.fileobj is self._listener:
                        self._open()
                    elif isinstance(key.fileobj, socket.socket):
                        self._pass_on(key.fileobj, key.data)

    def _open(self) -> None:
        near, _ = self._listener.accept()
        try:
            far = socket.create_connection(self._target)
        except OSError:
            near.close()
            return
        self._selector.register(near, selectors.EVENT_READ, far)
        self._selector.register(far, selectors.EVENT_READ, near)

    def _pass_on(self, from_: socket.socket, to: socket.socket) -> None:
        if from_.fileno() < 0:
            return  # dropped together with its other half
        try:
            data = from_.recv(_CHUNK)
            if data:
                to.sendall(data)
                return
        except OSError:
            pass
        self._drop(from_, to)

    def _drop(self, *ends: socket.socket) -> None:
        for end in ends:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(end)
            end.close()

    def _drop_all(self) -> None:
        for key in list(self._selector.get_map().values()):
            if key.fileobj is not self._listener and isinstance(key.fileobj, socket.socket):
                self._drop(key.fileobj)
