"""What a view asks of a store, whichever it is: a class of tests for all, and one for those that processes share.

A new store gets a class in ``test_stores.py``, with nothing in it but the fixture ``place``, and what is true of it
alone.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Protocol

import pytest

from cdc.base.errors import StoreRefused, StoreUnavailable
from cdc.views.store.port import Item, Key, Store, StoreSnapshot, Transaction
from tests.integration.views.store.elsewhere import SPACES, elsewhere, item, key, look
from tests.support.soak import times
from tests.support.waiting import eventually

LONGEST = 2_000
"""Bytes of an order; longer than a key of LMDB, which is 511, and than a row of PostgreSQL's indexes, cut several
times."""
LEADING = 480
"""After so many bytes LMDB's store goes on elsewhere: orders around that length are the ones that could go astray."""


class Place(Protocol):
    """Where stores under test are."""

    name: str
    """For ``open_store`` in another process."""

    def open(self, *, read_only: bool = False) -> Store:
        """One more store at this place."""


@contextmanager
def writing(place: Place) -> Iterator[Store]:
    with closing(place.open()) as store:
        assert store.lock()
        yield store


def commit(store: Store, space: str, *items: Item) -> int:
    transaction = store.begin()
    transaction.put(space, items)
    return transaction.commit()


def numbers(items: list[Item]) -> list[int]:
    return [int.from_bytes(each.key.order, "big") for each in items]


class StoreContract:
    """Of a ``Store``."""

    def test_before_anything_was_written_it_is_empty(self, place: Place) -> None:
        with closing(place.open(read_only=True)) as store:
            assert store.version() == 0
            assert store.read(lambda s: (s.version, s.get("a", [key(1)]), s.scan("a"), s.count("a"))) == (
                0, [None], [], 0,
            )  # fmt: skip
            assert store.size().disk_bytes >= 0

    def test_readers_see_a_commit_with_all_its_spaces_or_nothing_of_it(self, place: Place) -> None:
        with writing(place) as store, closing(place.open(read_only=True)) as reader:
            transaction = store.begin()
            for space in SPACES:
                transaction.put(space, [item(0), item(1)])
            assert transaction.get("left", [key(1), key(2)]) == [b"value of 1", None]
            assert reader.read(look) == {"version": 0, "counts": [0, 0], "first": [None, None]}
            version = transaction.version
            assert version > 0
            assert (transaction.commit(), reader.version()) == (version, version)
            assert reader.read(look) == {"version": version, "counts": [2, 2], "first": ["value of 0", "value of 0"]}

    def test_each_commit_is_one_version(self, place: Place) -> None:
        with writing(place) as store:
            first = store.begin().commit()
            assert first > 0
            assert [commit(store, "a", item(1)), commit(store, "a")] == [first + 1, first + 2]
            forgotten = store.begin()
            assert forgotten.version == first + 3
            forgotten.abort()
            assert (store.version(), store.begin().commit()) == (first + 2, first + 3)

    def test_what_was_aborted_was_never_there(self, place: Place) -> None:
        with writing(place) as store:
            commit(store, "a", item(1))
            transaction = store.begin()
            transaction.put("a", [item(1, b"new"), item(2)])
            transaction.delete("a", [key(1)])
            transaction.drop("a")
            transaction.abort()
            [found] = store.read(lambda s: s.scan("a"))
            assert (found.key.order, found.value) == (key(1).order, b"value of 1")
            assert store.read(lambda s: (s.get("a", [found.key]), s.count("a"))) == ([b"value of 1"], 1)
            with pytest.raises(StoreUnavailable):
                transaction.put("a", [item(3)])

    def test_after_a_commit_the_transaction_has_ended(self, place: Place) -> None:
        with writing(place) as store:
            transaction = store.begin()
            transaction.put("a", [item(1)])
            transaction.commit()
            transaction.abort()
            assert store.read(lambda s: s.count("a")) == 1
            with pytest.raises(StoreUnavailable):
                transaction.commit()

    def test_scans_stay_within_their_bounds(self, place: Place) -> None:
        with writing(place) as store:
            for space in ("a", "b", "c"):
                commit(store, space, *(item(number) for number in range(0, 20, 2)))

            def scan(start: int | None, stop: int | None, limit: int = 1000, *, backwards: bool = False) -> list[int]:
                first = b"" if start is None else key(start).order
                behind = None if stop is None else key(stop).order
                return store.read(lambda s: numbers(s.scan("b", first, behind, limit, backwards=backwards)))

            everything = list(range(0, 20, 2))
            assert scan(None, None) == everything
            assert scan(None, None, backwards=True) == everything[::-1]
            assert scan(4, 10) == scan(3, 9) == [4, 6, 8]
            assert scan(4, 10, backwards=True) == scan(3, 9, backwards=True) == [8, 6, 4]
            assert scan(None, 4) == scan(None, 4, backwards=True)[::-1] == [0, 2]
            assert scan(16, None) == scan(16, None, backwards=True)[::-1] == [16, 18]
            assert scan(4, None, 2) == [4, 6]
            assert scan(None, 10, 2, backwards=True) == [8, 6]
            for nothing in (scan(4, 4), scan(10, 4), scan(10, 4, backwards=True), scan(20, None), scan(None, None, 0)):
                assert nothing == []
            assert scan(None, 0, backwards=True) == scan(None, None, 0, backwards=True) == []

    def test_bounds_may_be_longer_than_any_key(self, place: Place) -> None:
        longest = [Key(bytes((number,)) * LONGEST, b"%d" % number) for number in (1, 2, 255)]
        with writing(place) as store:
            commit(store, "a", *(Item(each, each.text) for each in longest))
            behind = b"\x01" * LONGEST + b"\0"
            assert [each.value for each in store.read(lambda s: s.scan("a", behind * 2))] == [b"2", b"255"]
            assert [each.value for each in store.read(lambda s: s.scan("a", b"", behind))] == [b"1"]
            assert len(store.read(lambda s: s.scan("a", b"", b"\xff" * (LONGEST + 1)))) == 3
            assert store.read(lambda s: s.get("a", longest)) == [b"1", b"2", b"255"]

    def test_orders_of_any_length_are_sorted_and_told_in_pages_both_ways(self, place: Place, seed: int) -> None:
        chance = random.Random(seed)
        orders = sorted({long_order(chance) for _ in range(times(150, soak=2000))})
        keys = [Key(each, b"text of %b" % each) for each in orders]
        with writing(place) as store:
            for some in (keys[::2], keys[1::2]):
                commit(store, "a", *(Item(each, each.order[::-1]) for each in some))
            assert store.read(lambda s: (s.count("a"), s.get("a", keys))) == (
                len(keys), [each[::-1] for each in orders],
            )  # fmt: skip
            for backwards in (False, True):
                assert pages(store, b"", None, 2, backwards=backwards) == (orders[::-1] if backwards else orders)
            for _ in range(times(40, soak=2000)):
                low, high = sorted(chance.choice((chance.choice(orders), long_order(chance))) for _ in range(2))
                wanted = [each for each in orders if low <= each < high]
                assert pages(store, low, high, 1000) == pages(store, low, high, 2) == wanted
                assert pages(store, low, high, 2, backwards=True) == wanted[::-1]
            transaction = store.begin()
            gone = set(chance.sample(orders, len(orders) * 2 // 3))
            transaction.delete("a", [each for each in keys if each.order in gone])
            transaction.commit()
            left = [each for each in orders if each not in gone]
            assert (pages(store, b"", None, 7), store.read(lambda s: s.count("a"))) == (left, len(left))

    def test_it_counts_what_is_there(self, place: Place) -> None:
        with writing(place) as store:

            def change(*, put: range = range(0), delete: range = range(0), drop: bool = False) -> int:
                transaction = store.begin()
                if drop:
                    transaction.drop("a")
                transaction.put("a", [item(number, b"of %d" % transaction.version) for number in put])
                transaction.delete("a", [key(number) for number in delete])
                transaction.put("beside", [item(transaction.version)])
                transaction.commit()
                return store.read(lambda s: s.count("a"))

            assert change(put=range(10)) == 10
            assert change(put=range(5, 15)) == 15
            assert change(delete=range(10, 20)) == 10
            assert change(put=range(3), delete=range(1)) == 9
            assert change(drop=True) == 0
            assert change(put=range(2)) == 2
            assert change(put=range(2, 4), drop=True) == 2
            assert store.read(lambda s: (numbers(s.scan("a")), s.count("beside"))) == ([2, 3], 7)

    def test_a_dropped_space_is_gone_at_once_and_its_name_can_be_used_again(self, place: Place) -> None:
        many = 50_000
        with writing(place) as store:
            commit(store, "a", *(item(number) for number in range(many)))
            commit(store, "b", item(1))
            transaction = store.begin()
            transaction.drop("a")
            transaction.drop("nothing")
            assert transaction.get("a", [key(5)]) == [None]
            transaction.put("a", [item(7)])
            assert store.read(lambda s: s.count("a")) == many
            transaction.commit()
            for _ in range(5):
                assert store.read(lambda s: (s.count("a"), numbers(s.scan("a")), numbers(s.scan("b")))) == (1, [7], [1])
                store.begin().commit()

    def test_it_is_written_by_one_at_a_time(self, place: Place) -> None:
        with closing(place.open()) as second:
            with closing(place.open()) as first:
                assert (first.lock(), first.lock(), second.lock()) == (True, True, False)
                with pytest.raises(StoreRefused, match="locked"):
                    second.begin()
                version = commit(first, "a", item(1))
            assert second.lock()
            assert commit(second, "a", item(2)) > version
            assert second.read(lambda s: numbers(s.scan("a"))) == [1, 2]

    def test_closing_it_forgets_the_transaction_under_way(self, place: Place) -> None:
        with writing(place) as store:
            store.begin().put("a", [item(1)])
        with writing(place) as store:
            assert (store.version(), store.read(lambda s: s.count("a"))) == (0, 0)

    def test_a_transaction_is_continued_by_other_threads(self, place: Place) -> None:
        with writing(place) as store:
            begun: list[Transaction] = []
            steps = (
                lambda: begun.append(store.begin()),
                lambda: begun[0].put("a", [item(1)]),
                lambda: begun[0].put("a", [item(2)]),
                lambda: begun[0].commit(),
            )
            for step in steps:
                thread = threading.Thread(target=step)
                thread.start()
                thread.join()
            assert store.read(lambda s: numbers(s.scan("a"))) == [1, 2]

    def test_threads_read_one_commit_each_while_another_writes(self, place: Place) -> None:
        commits = times(200, soak=5000)
        torn: list[object] = []
        seen: set[int] = set()
        ended = threading.Event()

        def read(store: Store) -> None:
            while not ended.is_set():
                found = store.read(look)
                seen.add(found["version"])
                if found["first"] != [str(found["version"])] * 2 and found["version"]:
                    torn.append(found)

        with writing(place) as store, closing(place.open(read_only=True)) as reader:
            threads = [threading.Thread(target=read, args=[each]) for each in (store, reader)]
            for thread in threads:
                thread.start()
            try:
                eventually(lambda: seen)  # else a busy machine runs no reader before the last commit
                for _ in range(commits):
                    transaction = store.begin()
                    for space in SPACES:
                        transaction.put(space, [item(0, b"%d" % transaction.version)])
                    transaction.commit()
                eventually(lambda: len(seen) > 1)
            finally:
                ended.set()
                for thread in threads:
                    thread.join()
        assert torn == []
        assert len(seen) > 1

    def test_it_does_what_a_dictionary_does(self, place: Place, seed: int) -> None:
        chance = random.Random(seed)
        model: dict[str, dict[bytes, bytes]] = {}
        with writing(place) as store:
            for _ in range(times(60, soak=1000)):
                model = step(chance, store, model)
                assert store.read(lambda s: everything(s, 10_000)) == model
                space = chance.choice("abc")
                bounds = sorted((order(chance), order(chance)))
                low, high, limit = bounds[0], chance.choice([None, bounds[1]]), chance.randrange(1, 30)
                expected = [
                    (each, value)
                    for each, value in sorted(model.get(space, {}).items())
                    if each >= low and (high is None or each < high)
                ]
                for backwards in (False, True):
                    found = store.read(lambda s: s.scan(space, low, high, limit, backwards=backwards))
                    wanted = (expected[::-1] if backwards else expected)[:limit]
                    assert [(each.key.order, each.value) for each in found] == wanted
        with closing(place.open(read_only=True)) as store:
            assert store.read(lambda s: everything(s, 10_000)) == model


class SharedStoreContract(StoreContract):
    """Of a ``Store`` that other processes open too, and that outlives them all."""

    def test_what_was_committed_is_there_after_all_have_closed_it(self, place: Place) -> None:
        with writing(place) as store:
            version = commit(store, "a", item(1))
        with closing(place.open(read_only=True)) as store:
            assert (store.version(), store.read(lambda s: numbers(s.scan("a")))) == (version, [1])

    def test_another_process_sees_a_commit_with_all_its_spaces_or_nothing_of_it(self, place: Place) -> None:
        with elsewhere(place.name) as other:
            assert other.ask("read") == {"version": 0, "counts": [0, 0], "first": [None, None]}
            with writing(place) as store:
                transaction = store.begin()
                transaction.put("left", [item(0)])
                assert other.ask("read")["version"] == 0
                transaction.put("right", [item(0), item(1)])
                assert other.ask("read") == {"version": 0, "counts": [0, 0], "first": [None, None]}
                version = transaction.commit()
                assert other.ask("read") == {"version": version, "counts": [1, 2], "first": ["value of 0"] * 2}

    def test_two_processes_do_not_write(self, place: Place) -> None:
        with elsewhere(place.name) as other, closing(place.open()) as store:
            assert other.ask("lock")
            assert not store.lock()
            other.kill()
            assert store.lock()

    def test_a_writer_that_is_killed_leaves_nothing_of_its_transaction(self, place: Place) -> None:
        with elsewhere(place.name) as other, closing(place.open()) as store:
            assert other.ask("lock")
            other.ask("begin")
            other.ask("put", numbers=[0, 20_000])
            version = other.ask("commit")
            other.ask("begin")
            other.ask("put", numbers=[0, 40_000], salt="x")
            other.kill()
            assert store.lock()
            found = store.read(look)
            assert (found["version"], found["counts"]) == (version, [20_000, 20_000])
            assert commit(store, "left", item(0, b"new")) > version
            assert store.read(look)["first"][0] == "new"

    def test_a_writer_that_is_killed_while_it_commits_left_all_or_nothing(self, place: Place, seed: int) -> None:
        chance = random.Random(seed)
        before: list[int] = []
        for _ in range(times(5, soak=100)):
            with elsewhere(place.name) as other:
                assert other.ask("lock")
                other.tell("race")
                told = [other.answer() for _ in range(chance.randrange(1, 60))]
                other.kill()
            with writing(place) as store:
                found = store.read(look)
                assert found["version"] >= told[-1]
                assert found["first"] == [str(found["version"])] * 2
                before = [*before, *range(told[0], found["version"] + 1)]
                for space in SPACES:
                    assert numbers(store.read(lambda s: s.scan(space, limit=100_000))) == [0, *before]
                assert found["counts"] == [1 + len(before)] * 2

    def test_a_reader_that_is_killed_is_in_nobodys_way(self, place: Place) -> None:
        with writing(place) as store:
            commit(store, "left", *(item(number) for number in range(5000)))
            for _ in range(3):
                with elsewhere(place.name) as other:
                    other.ask("hold")
            sizes = []
            for _ in range(12):
                value = b"%0200d" % store.version()
                commit(store, "left", *(item(number, value) for number in range(5000)))
                sizes.append(store.size().disk_bytes)
            assert sizes[-1] <= sizes[3] * 1.5


def order(chance: random.Random) -> bytes:
    """Few enough that they meet again, some of them long."""
    if chance.random() < 0.25:
        return long_order(chance)
    return bytes(chance.choices((0, 1, 97, 255), k=chance.choice((1, 2, 3, LEADING))))


def long_order(chance: random.Random) -> bytes:
    """Most have their beginnings in common, up to about where a store may cut them."""
    same = chance.choice((b"x", b"\0", b"\xff")) * chance.choice(
        (1, LEADING - 1, LEADING, LEADING + 1, 2 * LEADING, LONGEST)
    )
    return same + bytes(chance.choices((0, 1, 97, 255), k=chance.randrange(4)))


def pages(store: Store, start: bytes, stop: bytes | None, limit: int, *, backwards: bool = False) -> list[bytes]:
    """All orders of space ``a`` within bounds, asked for a few at a time."""
    found: list[bytes] = []
    while True:
        page = store.read(lambda s: s.scan("a", start, stop, limit, backwards=backwards))
        found += [each.key.order for each in page]
        if len(page) < limit:
            return found
        if backwards:
            stop = found[-1]
        else:
            start = found[-1] + b"\0"


def everything(snapshot: StoreSnapshot, limit: int) -> dict[str, dict[bytes, bytes]]:
    found = {space: {each.key.order: each.value for each in snapshot.scan(space, limit=limit)} for space in "abc"}
    assert {space: snapshot.count(space) for space in "abc"} == {space: len(each) for space, each in found.items()}
    return {space: entries for space, entries in found.items() if entries}


def step(chance: random.Random, store: Store, model: dict[str, dict[bytes, bytes]]) -> dict[str, dict[bytes, bytes]]:
    """One transaction of random changes; what the store holds afterwards."""
    changed = {space: dict(entries) for space, entries in model.items()}
    transaction = store.begin()
    for _ in range(chance.randrange(6)):
        space = chance.choice("abc")
        orders = list({order(chance) for _ in range(chance.randrange(20))})
        keys = [Key(each, each.hex().encode()) for each in orders]
        entries = changed.setdefault(space, {})
        match chance.choice(("put", "put", "put", "delete", "drop", "get")):
            case "put":
                items = [Item(each, chance.randbytes(chance.choice((0, 10, 5000)))) for each in keys]
                transaction.put(space, items)
                entries.update((each.key.order, each.value) for each in items)
            case "delete":
                transaction.delete(space, keys)
                for each in orders:
                    entries.pop(each, None)
            case "drop":
                transaction.drop(space)
                entries.clear()
        assert transaction.get(space, keys) == [entries.get(each) for each in orders]
    if chance.random() < 0.2:
        transaction.abort()
        return model
    transaction.commit()
    return {space: entries for space, entries in changed.items() if entries}
