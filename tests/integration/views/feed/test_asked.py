"""What the feed fills is what ``TableView`` answers and a watcher is told, from a folder that another store reads."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import orjson

from cdc.base.lsn import LSN
from cdc.sink.apply.topics import RebuildOrder
from cdc.views.store.open import open_store
from cdc.views.table.answers import Range, Watched
from cdc.views.table.rows import StoredRow
from cdc.views.table.table_view import TableView
from tests.integration.views.feed.conftest import View, publish, rows_of, view_config
from tests.support.reading import fold_topic
from tests.support.topic_writer import TopicWriter
from tests.support.waiting import eventually


class Mirror:
    """Rows as a watcher knows them."""

    def __init__(self, view: TableView, table: str) -> None:
        self.rows: dict[bytes, StoredRow] = {}
        self.kinds: set[str] = set()
        self.error: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, args=[view, table])
        self._thread.start()

    def end(self) -> None:
        self._stop.set()
        self._thread.join()

    def _follow(self, view: TableView, table: str) -> None:
        try:
            for each in view.watch(table, self._stop):
                self._take(each)
        except BaseException as error:  # noqa: BLE001 - handed to the test
            self.error = error

    def _take(self, each: Watched) -> None:
        self.kinds.add(each.kind)
        if each.kind == "reset":
            self.rows.clear()
        elif each.row is not None:
            self.rows[each.key] = each.row
        else:
            self.rows.pop(each.key, None)


@contextmanager
def feeding(view: View) -> Iterator[View]:
    thread = threading.Thread(target=view.run)
    thread.start()
    try:
        yield view
    finally:
        view.stop.set()
        thread.join()


def test_answers_and_watchers_agree_with_the_topic(topics: TopicWriter, tmp_path: Path) -> None:
    rng = random.Random(5)
    table = topics.table("parts", ("region", "id"), region="text", id="int4", customer="int4")
    folder = str(tmp_path / "store")
    config = view_config(topics, store=folder, index={"public.parts": ["customer"]})
    keys = [{"region": region, "id": number} for region in ("eu", "us") for number in range(40)]
    publish(topics, table, 10, [{**key, "customer": 1} for key in keys[:60]])
    with closing(open_store(folder, read_only=True)) as reader:
        view = TableView(reader)
        with feeding(View(config, lambda: open_store(folder), reader)) as fed:
            assert eventually(lambda: fed.error or view.wait_for_lsn(LSN(11), 1)) is True
            mirror = Mirror(view, "public.parts")
            try:
                for lsn in range(20, 120, 10):
                    changed = rng.sample(keys, 20)
                    publish(
                        topics,
                        table,
                        lsn,
                        [{**key, "customer": rng.choice((1, 2, None))} for key in changed[:14]],
                        [dict(key) for key in changed[14:]],
                    )
                    assert eventually(lambda: fed.error or view.wait_for_lsn(LSN(lsn + 1), 1)) is True
                folded = {key: each.value for key, each in fold_topic(topics.options, table.topic).items()}
                shown = {row.key: row for row in view.scan("public.parts", Range(limit=1000)).rows}
                assert {key: row.row for key, row in shown.items()} == folded
                eventually(lambda: mirror.error or mirror.rows == shown, 20, lambda: f"{mirror.error}, {mirror.rows}")
                assert (mirror.error, mirror.rows) == (None, shown)
                assert {"row", "snapshot", "delete"} <= mirror.kinds
            finally:
                mirror.end()
            for key in keys:
                found = view.get("public.parts", (key["region"], key["id"]))
                text = orjson.dumps(key)
                assert (found.row, found.evidence.state) == (shown.get(text), "exact")
                assert view.get("public.parts", text).row == found.row
            by_customer = {
                customer: {
                    row.key for row in view.scan("public.parts", Range(by={"customer": customer}, limit=99)).rows
                }
                for customer in (1, 2, None)
            }
            wanted: dict[int | None, set[bytes]] = {customer: set() for customer in (1, 2, None)}
            for text, row in shown.items():
                wanted[orjson.loads(row.row)["customer"]].add(text)
            assert by_customer == wanted
            assert view.count("public.parts")[0] == len(shown)
            first = next(iter(shown.values()))
            assert view.wait_for_offset(table.topic, first.partition, first.offset, 0)


def test_a_watcher_sees_a_table_read_anew_and_no_row_is_missing_meanwhile(topics: TopicWriter, tmp_path: Path) -> None:
    table = topics.table("items", id="int4", v="int4")
    folder = str(tmp_path / "store")
    config = view_config(topics, store=folder)
    publish(topics, table, 10, rows_of(*range(300)))
    with closing(open_store(folder, read_only=True)) as reader:
        view = TableView(reader)
        with feeding(View(config, lambda: open_store(folder), reader)) as fed:
            assert eventually(lambda: fed.error or view.wait_for_lsn(LSN(11), 1)) is True
        mirror, counts = Mirror(view, "public.items"), set()
        try:
            eventually(lambda: "snapshot" in mirror.kinds)
            publish(topics, table, 20, rows_of(7, v=1), rows_of(8))
            rebuild = View(config, lambda: open_store(folder), reader, order=RebuildOrder(["public.items"]))
            with feeding(rebuild) as fed:

                def is_anew() -> bool:
                    counts.add(view.count("public.items")[0])
                    return view.tables()["public.items"].generation == 2 and view.wait_for_lsn(LSN(21), 0)

                eventually(lambda: fed.error or is_anew())
            shown = {row.key: row for row in view.scan("public.items", Range(limit=1000)).rows}
            eventually(lambda: mirror.error or mirror.rows == shown, 20, lambda: f"{mirror.error}, {mirror.rows}")
            assert (mirror.error, mirror.rows, len(shown)) == (None, shown, 299)
            assert "reset" in mirror.kinds
            assert counts <= {299, 300}, "the old generation was shown until the new one was whole"
        finally:
            mirror.end()
