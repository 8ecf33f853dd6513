"""The store in Redis passes the contract; and what is true of it alone: its server may go away, forget, or be full."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import psutil
import pytest

from cdc.base.errors import StoreUnavailable
from cdc.lab.stack import Redis, RedisServer
from cdc.views.store import redis_link, redis_transaction
from cdc.views.store.open import open_store
from cdc.views.store.port import Item, Key, StoreSnapshot
from tests.integration.views.store.contract import Place, SharedStoreContract, StoreContract, commit, numbers, writing
from tests.integration.views.store.elsewhere import SPACES, elsewhere, item, key, look
from tests.integration.views.store.redis_place import Prefix
from tests.support.sampling import sampled
from tests.support.servers import OwnStack
from tests.support.waiting import eventually

MANY = 200_000


@pytest.fixture
def place(redis: Redis) -> Prefix:
    return Prefix(redis.url)


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A process that gets no time from the system."""
    process = psutil.Process(pid)
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


class TestRedis(SharedStoreContract):
    @pytest.fixture(params=sampled(["2", "3"], ["2"]))
    def place(self, redis: Redis, request: pytest.FixtureRequest) -> Place:
        """With both versions of the protocol: the client speaks 2 unless its URL says otherwise."""
        return Prefix(f"{redis.url}?protocol={request.param}")


class TestRedisInSmallBlocks(StoreContract):
    """Every transaction is staged, many times over."""

    @pytest.fixture
    def place(self, redis: Redis, monkeypatch: pytest.MonkeyPatch) -> Place:
        monkeypatch.setattr(redis_transaction, "BLOCK_BYTES", 100)
        return Prefix(redis.url)

    def test_a_block_that_was_lost_is_missed(self, place: Prefix) -> None:
        with writing(place) as store:
            version = commit(store, "a", item(1))
            transaction = store.begin()
            for number in range(20):
                transaction.put("a", [item(number, b"new")])
            with closing(place.raw()) as raw:
                raw.delete(f"{place.prefix}:.staged")
            with pytest.raises(StoreUnavailable, match="has lost what was written to it"):
                transaction.commit()
            assert store.read(lambda s: (s.version, numbers(s.scan("a")))) == (version, [1])

    def test_nothing_is_left_of_what_was_staged(self, place: Prefix) -> None:
        with writing(place) as store, closing(place.raw()) as raw:
            for end in ("commit", "abort"):
                transaction = store.begin()
                transaction.drop("b")
                transaction.put("a", [item(number) for number in range(100)])
                assert raw.exists(f"{place.prefix}:.staged")
                getattr(transaction, end)()
            commit(store, "a")
            assert list(raw.scan_iter(f"{place.prefix}:.staged*")) == []
            store.begin().put("a", [item(number) for number in range(100)])
        with closing(place.raw()) as raw:
            assert list(raw.scan_iter(f"{place.prefix}:.staged*")) == []


class TestServer:
    """The server goes away, sleeps, forgets."""

    @pytest.fixture
    def kept(self, own_stack: OwnStack) -> RedisServer:
        return own_stack.redis(persistent=True)

    def test_a_kill_amid_commits_loses_nothing_that_was_told(self, kept: RedisServer) -> None:
        place = Prefix(kept.url)
        for _ in range(3):
            with elsewhere(place.name) as other:
                assert other.ask("lock")
                other.tell("race")
                told = [other.answer() for _ in range(50)][-1]
                kept.kill()
                failed = next(answer for answer in iter(other.answer, None) if isinstance(answer, dict))
                assert failed["error"] == "StoreUnavailable"
            kept.restart()
            with closing(place.open(read_only=True)) as reader:
                found = reader.read(look)
                assert found["version"] >= told
                assert found["first"] == [str(found["version"])] * 2
                keys = [reader.read(lambda s: numbers(s.scan(space, limit=10**6))) for space in SPACES]
                assert keys[0] == keys[1]
                assert keys[0][-1] == found["version"]

    def test_a_server_that_comes_back_empty_is_never_taken_for_the_old_one(self, own_stack: OwnStack) -> None:
        server = own_stack.redis()
        place = Prefix(server.url)
        with writing(place) as writer, closing(place.open(read_only=True)) as reader:
            old = commit(writer, "left", item(0))
            assert reader.read(look)["version"] == old
            server.kill()
            with pytest.raises(StoreUnavailable):
                reader.version()
            server.restart()
            for look_again in (reader.version, lambda: reader.read(look)):
                with pytest.raises(StoreUnavailable, match="has lost commits"):
                    look_again()
            with pytest.raises(StoreUnavailable, match="forgotten"):
                commit(writer, "left", item(1))
            with writing(place) as second:
                assert second.version() == 0
                assert commit(second, "left", item(2)) > old
            assert numbers(reader.read(lambda s: s.scan("left"))) == [2]

    def test_after_commits_were_lost_no_version_is_used_again(self, own_stack: OwnStack) -> None:
        server = own_stack.redis()
        place = Prefix(server.url)
        with writing(place) as writer, closing(place.open(read_only=True)) as reader:
            first = commit(writer, "left", item(0))
            with closing(place.raw()) as raw:
                raw.save()
            lost = [commit(writer, "left", item(number)) for number in (1, 2)]
            assert reader.version() == lost[-1]
            server.kill()
            server.restart()
            with pytest.raises(StoreUnavailable, match="has lost commits"):
                reader.read(look)
            with pytest.raises(StoreUnavailable, match="moved"):
                commit(writer, "left", item(3))
        with closing(place.open(read_only=True)) as fresh:
            assert (fresh.version(), numbers(fresh.read(lambda s: s.scan("left")))) == (first, [0])
        with writing(place) as writer, closing(place.open(read_only=True)) as reader:
            assert writer.version() == first
            assert commit(writer, "left", item(4)) > lost[-1]
            assert numbers(reader.read(lambda s: s.scan("left"))) == [0, 4]

    def test_who_took_over_is_not_taken_for_a_stranger_by_a_server_that_forgot_it(self, own_stack: OwnStack) -> None:
        """What it has left says that the one writes who was killed before."""
        server = own_stack.redis()
        place = Prefix(server.url)
        with elsewhere(place.name) as first, closing(place.raw()) as raw:
            assert first.ask("lock")
            raw.save()
            first.kill()
        with writing(place) as second:
            commit(second, "left", item(1))
            server.kill()
            server.restart()
            with pytest.raises(StoreUnavailable, match="has lost what was written to it"):
                commit(second, "left", item(2))
        with writing(place) as again:
            commit(again, "left", item(3))
            assert numbers(again.read(lambda s: s.scan("left"))) == [3]

    def test_a_server_that_sleeps_is_not_waited_for_by_readers(
        self, kept: RedisServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(redis_link, "READER_TIMEOUT_S", 0.5)
        place = Prefix(kept.url)
        with writing(place) as store, closing(place.open(read_only=True)) as reader:
            version = commit(store, "left", item(0))
            with stopped(kept.pid), pytest.raises(StoreUnavailable, match="does not answer"):
                reader.read(look)
            assert reader.read(look)["version"] == version
            assert commit(store, "left", item(1)) == version + 1

    def test_who_knows_nobody_there_says_so(self) -> None:
        with pytest.raises(StoreUnavailable, match=r"redis://127\.0\.0\.1:1/0 \(prefix cdc\) does not answer") as told:
            open_store("redis://me:secret@127.0.0.1:1/0")
        assert "secret" not in str(told.value)


class TestWriters:
    """One of them."""

    def test_who_slept_while_another_one_took_over_can_never_commit(self, place: Prefix) -> None:
        with elsewhere(place.name) as other, closing(place.open()) as store:
            assert other.ask("lock")
            other.ask("begin")
            other.ask("put", numbers=[0, 10])
            with stopped(other.process.pid):
                assert store.lock()
                version = commit(store, "left", item(7))
            other.tell("commit")
            assert other.answer()["error"] == "StoreRefused"
            assert store.read(lambda s: (s.version, numbers(s.scan("left")))) == (version, [7])
            assert commit(store, "left", item(8)) == version + 1

    def test_who_slept_and_nobody_came_goes_on(self, place: Prefix) -> None:
        with elsewhere(place.name) as other, closing(place.open(read_only=True)) as store, closing(place.raw()) as raw:
            assert other.ask("lock")
            other.ask("begin")
            other.ask("put", numbers=[0, 10])
            with stopped(other.process.pid):
                eventually(lambda: not raw.exists(f"{place.prefix}:.lock"))
            assert other.ask("commit") == store.version()

    def test_who_is_quiet_keeps_the_lock(self, place: Prefix) -> None:
        with writing(place), closing(place.open()) as second:
            begun = time.monotonic()
            while time.monotonic() - begun < 6:
                assert not second.lock()

    def test_another_process_sees_only_whole_commits(self, place: Prefix) -> None:
        versions = set()
        with elsewhere(place.name) as other, closing(place.open(read_only=True)) as reader:
            assert other.ask("lock")
            other.tell("race")
            other.answer()
            for _ in range(300):
                found = reader.read(look)
                assert found["first"] == [str(found["version"])] * 2
                assert found["counts"][0] == found["counts"][1]
                versions.add(found["version"])
        assert len(versions) > 10

    def test_a_large_transaction_is_seen_at_once(self, place: Prefix) -> None:
        with elsewhere(place.name) as other, closing(place.open(read_only=True)) as reader:
            assert other.ask("lock")
            version = other.ask("begin")
            other.ask("put", numbers=[0, MANY])
            with closing(place.raw()) as raw:
                assert raw.exists(f"{place.prefix}:.staged")
            other.tell("commit")
            seen = [(0, 0, 0)]
            while seen[-1][0] < version:
                with contextlib.suppress(StoreUnavailable):  # a machine of which others want much is long busy with it
                    seen.append(reader.read(lambda s: (s.version, s.count("left"), s.count("right"))))
            assert set(seen) <= {(0, 0, 0), (version, MANY, MANY)}
            assert other.answer() == version
            for start in range(0, MANY, 50_000):
                found = reader.read(lambda s: s.scan("right", key(start).order, None, 50_000))
                assert numbers(found) == list(range(start, start + 50_000))


class TestReaders:
    """Of queries."""

    def test_what_a_query_remembers_of_another_version_does_not_matter(self, place: Prefix) -> None:
        remembered: dict[int, bytes | None] = {}

        def query(snapshot: StoreSnapshot) -> bytes | None:
            if snapshot.version not in remembered:
                remembered[snapshot.version] = snapshot.get("left", [key(0)])[0]
            if remembered[snapshot.version] == b"old":
                raise LookupError
            return remembered[snapshot.version]

        with writing(place) as store, closing(place.open(read_only=True)) as reader:
            commit(store, "left", item(0, b"old"))
            with pytest.raises(LookupError):
                reader.read(query)
            commit(store, "left", item(0, b"new"))
            assert reader.read(query) == b"new"
            assert reader.read(query) == b"new"

    def test_a_row_is_one_question(self, place: Prefix) -> None:
        with writing(place) as store, closing(place.open(read_only=True)) as reader, closing(place.raw()) as raw:
            commit(store, "left", item(0), item(1))
            reader.version()
            raw.config_resetstat()
            assert reader.read(lambda s: (s.version > 0, s.get("left", [key(1)]))) == (True, [b"value of 1"])
            calls: Any = raw.info("commandstats")
            assert calls["cmdstat_evalsha"]["calls"] == 1

    def test_a_query_ends_while_commits_follow_one_another(self, place: Prefix) -> None:
        ended = threading.Event()

        def write() -> None:
            with writing(place) as store:
                while not ended.is_set():
                    commit(store, "left", *(item(number) for number in range(20)))

        thread = threading.Thread(target=write)
        thread.start()
        try:
            with closing(place.open(read_only=True)) as reader:
                eventually(reader.version)
                for _ in range(20):
                    found = reader.read(lambda s: [s.get("left", [key(number)])[0] for number in range(20)])
                    assert None not in found
        finally:
            ended.set()
            thread.join()

    def test_other_programs_look_rows_up(self, place: Prefix) -> None:
        """As docs/redis.md says: the fact of the table, then the row."""
        with writing(place) as store:
            transaction = store.begin()
            fact = b"table/public.customers"
            transaction.put("facts", [Item(Key(fact, fact), b'{"number":1,"generation":3}')])
            transaction.put("rows/1/3", [Item(Key(b"\x21\x2a", b'{"id":42}'), b'{"at":[],"key":{"id":42},"row":{}}')])
            transaction.commit()
        with closing(place.raw()) as raw:
            ask: Callable[..., object] = raw.execute_command
            assert ask("HGET", f"{place.prefix}:facts", fact) == b'{"number":1,"generation":3}'
            found = ask("HGET", f"{place.prefix}:rows/1/3", '{"id":42}')
            assert found == b'{"at":[],"key":{"id":42},"row":{}}'
