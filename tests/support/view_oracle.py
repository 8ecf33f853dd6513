"""Source = folded topic = view, whatever store the view is in."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

from cdc.base.errors import StoreUnavailable
from cdc.base.lsn import LSN
from cdc.lab.proof.comparison import describe, difference, pinned, table_rows, topic_rows
from cdc.lab.proof.topic_side import LiveRow, read_topics
from cdc.views.store.lmdb_store import LmdbStore
from cdc.views.store.port import Store
from tests.support.deployment import Deployment
from tests.support.view_feed import ViewProcess
from tests.support.views import facts_of, look
from tests.support.waiting import eventually

OpenStore = Callable[[], Store]


def in_folder(folder: Path) -> OpenStore:
    """Opens the store in ``folder``, to read."""
    return partial(LmdbStore, folder, read_only=True)


def lsn_of(open_store: OpenStore) -> LSN:
    """Up to where the view shows its tables; nothing while the store is away, or has lost them."""
    try:
        with closing(open_store()) as store:
            view = facts_of(store).view
    except StoreUnavailable:
        return LSN(0)
    return LSN(0) if view is None else view.position


def wait_for_view(deployment: Deployment, view: ViewProcess, open_store: OpenStore) -> None:
    """Until the view shows what the source has committed by now."""
    wanted = deployment.wait_published(timeout_s=120)

    def there() -> bool:
        assert not view.ended, view.tail()
        return lsn_of(open_store) >= wanted

    eventually(there, 120, lambda: f"the view is at {lsn_of(open_store)}, not {wanted}\n{view.tail()}")


def assert_equal(deployment: Deployment, open_store: OpenStore, *tables: str) -> None:
    """Row by row; indexes and counts are right, and offsets are behind all rows."""
    with closing(open_store()) as store, pinned(deployment.source.dsn) as source:
        for name in tables:
            seen, shape = look(store, name), describe(source, name)
            assert seen is not None
            assert seen.table.state == "exact", seen.table
            live = {key: LiveRow(row.row) for key, row in seen.rows.items()}
            found = difference("view", table_rows(source, shape), topic_rows(live, shape), shape)
            assert found is None, f"{name}: {found}"
            folded = read_topics(deployment.bootstrap, [seen.table.topic])[seen.table.topic].live
            assert {key: each.value for key, each in folded.items()} == {key: row.row for key, row in seen.rows.items()}
            ends = facts_of(store).offsets[seen.table.topic]
            assert all(row.offset < ends[row.partition] for row in seen.rows.values())
