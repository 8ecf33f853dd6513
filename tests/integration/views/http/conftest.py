"""Views in real stores, and servers over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import pytest

from cdc.base.config import Config
from cdc.base.daemon.worker import Worker
from cdc.views.http.listening import ServerThread, listen, url_of
from cdc.views.http.run import make_server
from cdc.views.http.tally import Tally, shared_cells
from cdc.views.query.desk import Served
from cdc.views.store.open import open_store
from cdc.views.store.port import Store
from cdc.views.table.table_view import TableView
from tests.support.planted_view import PlantedView, events, stock, users

ADA = {"id": 1, "name": "Ada", "city": "London"}
BOB = {"id": 2, "name": "Bob", "city": "Paris"}
CY = {"id": 3, "name": "Cy", "city": "Paris"}

Serve: TypeAlias = Callable[..., httpx.Client]


@contextmanager
def serving(store: Store, settings: dict[str, Any], **sections: Any) -> Iterator[httpx.Client]:
    """A server in this process over a store; its client begins at the server's address."""
    content = {"name": "shop", "source": {"dsn": "host=x"}, "kafka": {"bootstrap": "127.0.0.1:1"}, **sections}
    config = Config.model_validate({**content, "serve": {"port": 0, **settings}})
    listening = listen(config.serve)
    thread = ServerThread(
        lambda: make_server(config, Served(TableView(store), None, (), True), Tally(shared_cells(1)), bytes), listening
    )
    worker = Worker(thread.run, name="serve")
    worker.start()
    verify = not config.serve.tls_cert
    with httpx.Client(base_url=url_of(listening, config.serve), timeout=20, verify=verify) as client:
        try:
            yield client
        finally:
            thread.stop()
            worker.end(None)


@pytest.fixture
def serve() -> Iterator[Serve]:
    """``serve(store, tokens_file=…)``: a client of a server over a store."""
    with ExitStack() as stack:
        yield lambda store, **settings: stack.enter_context(serving(store, settings))


@pytest.fixture(params=["lmdb", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store."""
    opened = open_store("memory" if request.param == "memory" else str(tmp_path / "view"))
    yield opened
    opened.close()


@pytest.fixture
def lmdb(tmp_path: Path) -> Iterator[Store]:
    """An empty store in a folder, for what does not depend on the kind of store."""
    opened = open_store(str(tmp_path / "view"))
    yield opened
    opened.close()


@pytest.fixture
def view(lmdb: Store) -> PlantedView:
    """Users, stock and a topic of another program, with a few rows."""
    return planted(lmdb)


def planted(store: Store) -> PlantedView:
    """Users, stock and a topic of another program, with a few rows."""
    view = PlantedView(store, [users(), stock(), events()])
    view.put("public.users", ADA, BOB, CY)
    rows = [("eu", 1), ("eu", 2), ("eu", 10), ("us", 1), ("a/b", 7)]
    view.put("public.stock", *({"region": region, "item": item, "amount": "1.50"} for region, item in rows))
    view.put_raw("events", b"first", b'{"n": 1}')
    return view
