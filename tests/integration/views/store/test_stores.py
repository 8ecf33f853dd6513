"""Each store that there is passes the contract; and what is true of one of them alone."""

from __future__ import annotations

import json
import mmap
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import lmdb
import pytest

from cdc.base.errors import ConfigError, StoreDamaged, StoreRefused, StoreUnavailable
from cdc.views.store import lmdb_environment
from cdc.views.store.memory import MemoryStore
from cdc.views.store.open import open_store
from cdc.views.store.port import Store
from tests.integration.views.store.contract import Place, SharedStoreContract, StoreContract, commit, numbers, writing
from tests.integration.views.store.elsewhere import elsewhere, item, key, look
from tests.support.waiting import eventually


class Memory:
    """Stores of one memory."""

    name = "memory"

    def __init__(self) -> None:
        self._first = MemoryStore()

    def open(self, *, read_only: bool = False) -> Store:
        return MemoryStore(self._first.contents)


class Folder:
    """Stores in a folder that is not there yet."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = str(path)

    def open(self, *, read_only: bool = False) -> Store:
        return open_store(self.name, read_only=read_only)


class TestMemory(StoreContract):
    @pytest.fixture
    def place(self) -> Place:
        return Memory()

    def test_it_tells_how_much_it_holds(self, place: Place) -> None:
        with writing(place) as store:
            commit(store, "a", item(1, b"12"), item(2, b"12"))
            assert store.size().memory_bytes == 20
            commit(store, "a", item(1, b"1234"))
            transaction = store.begin()
            transaction.delete("a", [key(2), key(3)])
            transaction.commit()
            assert store.size().memory_bytes == 12
            transaction = store.begin()
            transaction.drop("a")
            transaction.commit()
            assert store.size().memory_bytes == 0


class TestFolder(SharedStoreContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Folder:
        return Folder(tmp_path / "deep" / "store")

    def test_a_reader_writes_nothing(self, place: Folder) -> None:
        with closing(place.open(read_only=True)) as store:
            assert store.read(look)["version"] == 0
            with pytest.raises(StoreRefused, match="reading only"):
                store.lock()
        assert not place.path.exists()

    def test_the_map_grows_between_transactions_for_readers_too(
        self, place: Folder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.map_of(1 << 20, monkeypatch)
        with writing(place) as store, elsewhere(place.name) as other, closing(place.open(read_only=True)) as beside:
            for number in range(0, 30_000, 500):
                commit(store, "left", *(item(each, b"%0200d" % each) for each in range(number, number + 500)))
                if number % 5000 == 0:
                    assert other.ask("read")["counts"][0] == beside.read(look)["counts"][0] == number + 500
            assert store.size().disk_bytes > 6 << 20
            assert other.ask("read")["counts"][0] == 30_000

    def test_a_transaction_that_outgrows_the_map_is_made_again(
        self, place: Folder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.map_of(1 << 20, monkeypatch)
        with writing(place) as store:
            for _ in range(3):  # 1, 2 and 4 MB are not enough
                transaction = store.begin()
                with pytest.raises(StoreUnavailable, match="try again"):
                    transaction.put("left", [item(each, b"%0200d" % each) for each in range(25_000)])
                with pytest.raises(StoreUnavailable, match="ended"):
                    transaction.commit()
            commit(store, "left", *(item(each, b"%0200d" % each) for each in range(25_000)))
            seen = store.read(look)
            assert (seen["counts"], seen["first"]) == ([25_000, 0], [f"{0:0200d}", None])

    def test_where_addresses_are_few_it_begins_with_a_smaller_map(self, place: Folder) -> None:
        limited = f"""
import resource
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
from cdc.views.store.open import open_store
store = open_store({place.name!r})
assert store.lock()
print(store.begin().commit())
store.close()
"""
        ran = subprocess.run([sys.executable, "-c", limited], capture_output=True, text=True, check=False)
        assert (int(ran.stdout) > 0, ran.stderr) == (True, "")

    def test_a_full_disk_is_told_and_nothing_is_lost(self, place: Folder) -> None:
        with writing(place) as store:
            before = commit(store, "left", item(0))
        full = f"""
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
from cdc.base.errors import StoreFull
from cdc.views.store.open import open_store
from tests.integration.views.store.elsewhere import item
store = open_store({place.name!r})
assert store.lock()
try:
    transaction = store.begin()
    transaction.put("left", [item(number, b"x" * 300) for number in range(10_000)])
    transaction.commit()
except StoreFull as error:
    print(error)
transaction = store.begin()
transaction.put("left", [item(1)])
print(transaction.commit())
store.close()
"""
        ran = subprocess.run([sys.executable, "-c", full], capture_output=True, text=True, check=False)
        assert ran.stderr == ""
        message, remedy, version = ran.stdout.splitlines()
        assert message.startswith(f"the disk cannot take what the store in {place.path} writes")
        assert "make room" in remedy
        assert int(version) == before + 1
        with closing(place.open(read_only=True)) as store:
            assert store.read(lambda s: numbers(s.scan("left"))) == [0, 1]

    def test_a_transaction_takes_no_more_memory_when_it_is_larger(self, place: Folder) -> None:
        with elsewhere(place.name) as other:
            assert other.ask("lock")
            other.ask("begin")
            memory = [other.ask("put", numbers=[each * 70_000, (each + 1) * 70_000], size=1000) for each in range(6)]
            assert other.ask("commit") > 0
            assert other.ask("read")["counts"] == [420_000, 420_000]
        assert memory[0] > 100 << 20, "memory does not show what is not on the disk yet"
        most = 131_072 * mmap.PAGESIZE
        assert max(memory) < most + (200 << 20)
        if mmap.PAGESIZE == 4096:
            assert place.path.joinpath("data.mdb").stat().st_size > 1.5 * most

    def test_a_folder_of_somebody_else_is_refused_and_left_alone(self, place: Folder) -> None:
        place.path.mkdir(parents=True)
        (place.path / "data.mdb").write_bytes(b"mine")
        with closing(place.open()) as store, pytest.raises(StoreRefused, match="not a store and is not empty"):
            store.lock()
        assert [each.name for each in place.path.iterdir()] == ["data.mdb"]
        with closing(place.open(read_only=True)) as store:
            assert store.version() == 0

    @pytest.mark.parametrize("mark", ['{"format": 99}', "{}", "not JSON"])
    def test_a_folder_of_another_version_is_refused(self, place: Folder, mark: str) -> None:
        with writing(place) as store:
            commit(store, "left", item(0))
        (place.path / "cdc-store.json").write_text(mark)
        with closing(place.open()) as store:
            with pytest.raises(StoreRefused, match="delete the folder"):
                store.lock()
            with pytest.raises(StoreRefused, match="this program reads format 2"):
                store.read(look)

    def test_a_file_that_is_no_store_is_told_and_filled_anew(self, place: Folder) -> None:
        with writing(place) as store:
            before = commit(store, "left", item(0))
        (place.path / "data.mdb").write_bytes(b"x" * 100_000)
        with closing(place.open(read_only=True)) as reader:
            for _ in range(2):
                with pytest.raises(StoreDamaged, match=r"is damaged: .*INVALID"):
                    reader.read(look)
            with writing(place) as store:
                assert reader.read(look)["counts"] == [0, 0]
                assert commit(store, "left", item(1)) > before
                assert eventually(lambda: reader.read(look)["counts"] == [1, 0], message=lambda: "the new one")

    def test_a_store_that_is_deleted_and_made_anew_is_seen(
        self, place: Folder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(lmdb_environment, "LOOK_S", 0)
        with elsewhere(place.name) as other, closing(place.open(read_only=True)) as reader:
            assert other.ask("lock")
            for _ in range(2):
                other.ask("begin")
                other.ask("put", numbers=[0, 10])
                before = other.ask("commit")
                assert reader.version() == before
            for path in place.path.iterdir():
                path.unlink()
            assert reader.version() == 0
            assert other.ask("begin")["error"] == "StoreUnavailable"
            with elsewhere(place.name) as another:
                assert another.ask("lock")
                another.ask("begin")
                assert another.ask("commit") > before, "followers of the one before wait for greater versions"
                assert reader.version() > before

    def test_what_it_dropped_is_swept_away(self, place: Folder) -> None:
        with writing(place) as store:
            for _ in range(4):
                commit(store, "left", *(item(number, b"%0200d" % number) for number in range(30_000)))
                transaction = store.begin()
                transaction.drop("left")
                transaction.commit()
                store.begin().commit()
        with lmdb.open(place.name, readonly=True) as opened:
            assert opened.stat()["entries"] == 2  # the version, and the next space's number

    def test_names_of_places(self, place: Folder) -> None:
        with pytest.raises(ConfigError, match="unknown kind of store ftp://"):
            open_store("ftp://somewhere")
        with closing(open_store("memory")) as store:
            assert store.lock()

    def test_the_folder_says_what_it_is(self, place: Folder) -> None:
        with writing(place):
            assert json.loads((place.path / "cdc-store.json").read_text())["format"] == 2

    @staticmethod
    def map_of(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(lmdb_environment, "MOST_MAP", size)
        monkeypatch.setattr(lmdb_environment, "LEAST_MAP", size)
