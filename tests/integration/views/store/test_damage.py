"""A folder whose file does not give back what was written: no answer is ever made of that."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import lmdb
import pytest

from cdc.base.errors import StoreDamaged
from cdc.views.store.lmdb_check import length_of, problem_of
from cdc.views.store.lmdb_store import LmdbStore, look_through
from cdc.views.store.port import Item, Key
from tests.integration.views.store.elsewhere import elsewhere, item, key
from tests.support.soak import times

_ROWS = 3_000
_LONG = 40


def expected() -> dict[bytes, bytes]:
    """By order. Some are long, some have pages of their own."""
    rows = {key(number).order: b"%d " % number * (2_000 if number % 100 == 0 else 30) for number in range(_ROWS)}
    return rows | {b"\x80" * 600 + b"%d" % number: b"long %d" % number for number in range(_LONG)}


def fill(path: Path) -> None:
    """In several commits, so that there are free pages, too."""
    rows = [Item(Key(order, order.hex().encode()), value) for order, value in expected().items()]
    with closing(LmdbStore(path)) as store:
        assert store.lock()
        for some in (rows[::3], rows[1::3], rows[2::3], rows[::7]):
            transaction = store.begin()
            transaction.put("rows", some)
            transaction.commit()


def main(path: str) -> None:
    """Ask for every row by its key and in pages: how many answers are right, lacking, wrong and refused."""
    rows = expected()
    said = {"right": 0, "lacking": 0, "wrong": 0, "refused": 0}
    with closing(LmdbStore(Path(path), read_only=True)) as store:

        def tell(found: bytes | None, wanted: bytes) -> None:
            said["right" if found == wanted else "lacking" if found is None else "wrong"] += 1

        def page_from(start: bytes) -> list[Item]:
            return store.read(lambda s: s.scan("rows", start, None, 500))

        for order, value in rows.items():
            try:
                tell(store.read(lambda s: s.get("rows", [Key(order, b"")])[0]), value)
            except StoreDamaged:
                said["refused"] += 1
        start: bytes | None = b""
        told = 0
        while start is not None:
            try:
                page = page_from(start)
            except StoreDamaged:
                said["refused"] += 1
                break
            for each in page:
                tell(each.value, rows.get(each.key.order, b"there is no such row"))
            told += len(page)
            start = page[-1].key.order + b"\0" if len(page) == 500 else None
        else:
            said["lacking"] += len(rows) - told
    sys.stdout.write(json.dumps(said))


def read_elsewhere(path: Path) -> dict[str, Any]:
    """What ``main`` says; or the signal that ended it."""
    command = [sys.executable, "-m", "tests.integration.views.store.test_damage", str(path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if ran.returncode < 0:
        return {"wrong": 0, "lacking": 0, "refused": 0, "signal": signal.Signals(-ran.returncode).name}
    assert ran.returncode == 0, ran.stderr
    return dict(json.loads(ran.stdout))


def damaged(data: bytes, chance: random.Random) -> bytes:
    """One byte or 64 of them are other ones; mostly in pages that are in use, of the tree as of rows."""
    changed = bytearray(data)
    pages = [at for at in range(0, len(data), 4096) if data[at + 10 : at + 12] != b"\0\0"]
    first = chance.choice(pages) if chance.random() < 0.7 else chance.randrange(len(data) - 4096)
    at = first + chance.choice((chance.randrange(40), chance.randrange(4032)))
    for place in range(at, at + chance.choice((1, 64))):
        changed[place] ^= chance.randrange(1, 256)
    return bytes(changed)


def look_for_wrong_answers(folder: Path, seed: int, copies: int) -> None:
    """Of each damaged copy: no answer is wrong, and what is found by nobody who reads is found by who looks through."""
    fill(folder / "whole")
    data = (folder / "whole" / "data.mdb").read_bytes()
    chance, outcomes = random.Random(seed), []
    for number in range(copies):
        copy = folder / str(number)
        shutil.copytree(folder / "whole", copy)
        (copy / "data.mdb").write_bytes(damaged(data, chance))
        found = read_elsewhere(copy)
        (copy / "damaged.json").unlink(missing_ok=True)
        problem = problem_of(copy)
        outcomes.append((found, problem))
        assert found["wrong"] == 0, (number, found)
        assert problem or (found["lacking"], found["refused"], found.get("signal")) == (0, 0, None), (number, found)
        with closing(LmdbStore(copy)) as store:
            assert store.lock()
            left = store.read(lambda s: s.count("rows"))
            assert left == (0 if problem else len(expected())), "it begins with nothing, or with everything"
            transaction = store.begin()
            transaction.put("rows", [item(0, b"new")])
            transaction.commit()
            assert store.read(lambda s: s.get("rows", [key(0)])) == [b"new"]
        shutil.rmtree(copy)
    sys.stdout.write(f"{sum(bool(problem) for _, problem in outcomes)} of {copies} were found: {outcomes}\n")


def test_damaged_bytes_are_never_served_as_a_row(tmp_path: Path, seed: int) -> None:
    look_for_wrong_answers(tmp_path, seed, times(6, soak=300))


@pytest.mark.long
def test_damaged_bytes_are_never_served_as_a_row_at_a_hundred_places(tmp_path: Path, seed: int) -> None:
    look_for_wrong_answers(tmp_path, seed, 100)


def test_a_file_that_is_cut_off_ends_nobody_who_has_it_open(tmp_path: Path) -> None:
    fill(tmp_path / "store")
    data = tmp_path / "store" / "data.mdb"
    with closing(LmdbStore(tmp_path / "store", read_only=True)) as reader, elsewhere(str(tmp_path / "store")) as other:
        assert other.ask("lock")
        assert reader.read(lambda s: s.get("rows", [key(1)])) == [expected()[key(1).order]]
        os.truncate(data, data.stat().st_size // 2)
        for _ in range(2):
            with pytest.raises(StoreDamaged, match=r"data\.mdb has [0-9,]+ bytes, but had "):
                reader.read(lambda s: s.get("rows", [key(1)]))
        assert other.ask("begin")["error"] == "StoreDamaged"
    with closing(LmdbStore(tmp_path / "store")) as store:
        assert store.lock()
        assert store.version() == 0


def test_a_file_that_grows_while_it_is_looked_at_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "store")
    look, looks = os.fstat, iter((True,))
    with closing(LmdbStore(tmp_path / "store")) as store:
        assert store.lock()

        def grow() -> None:
            before = store.size().disk_bytes
            transaction = store.begin()
            transaction.put("rows", [Item(key(number), b"x" * 50_000) for number in range(100)])
            transaction.commit()
            assert store.version()
            assert store.size().disk_bytes > before

        def looked(file: int) -> os.stat_result:
            found = look(file)
            if next(looks, False):  # another thread's whole transaction, between a look and what is made of it
                thread = threading.Thread(target=grow)
                thread.start()
                thread.join()
            return found

        monkeypatch.setattr(os, "fstat", looked)
        assert store.read(lambda s: s.get("rows", [key(1)])) == [b"x" * 50_000]
        assert next(looks, "used") == "used"


def test_who_writes_finds_by_itself_that_a_file_was_cut_off(tmp_path: Path) -> None:
    fill(tmp_path / "store")
    data = tmp_path / "store" / "data.mdb"
    with elsewhere(str(tmp_path / "store")) as other:
        assert other.ask("lock")
        os.truncate(data, data.stat().st_size // 2)
        for _ in range(2):
            assert other.ask("begin")["error"] == "StoreDamaged"
    with closing(LmdbStore(tmp_path / "store")) as store:
        assert store.lock()
        assert store.version() == 0


def test_a_copy_that_was_broken_off_is_found_when_it_is_opened(tmp_path: Path) -> None:
    fill(tmp_path / "store")
    data = tmp_path / "store" / "data.mdb"
    os.truncate(data, data.stat().st_size // 2)
    assert look_through(tmp_path / "store").startswith("data.mdb has ")
    with closing(LmdbStore(tmp_path / "store", read_only=True)) as reader, pytest.raises(StoreDamaged):
        reader.version()


def test_free_pages_at_the_end_of_a_file_are_no_damage(tmp_path: Path, seed: int) -> None:
    """LMDB does not write pages that are free again by the time of the commit: the file is shorter than it says."""
    chance = random.Random(seed)
    for _ in range(times(25, soak=1000)):
        with closing(LmdbStore(tmp_path / "store")) as store:
            assert store.lock()
            for _ in range(3):
                transaction = store.begin()
                keys = [key(chance.randrange(3_000)) for _ in range(chance.choice((1, 300, 1_500)))]
                size = chance.choice((20, 3_000, 9_000))
                transaction.put("rows", [Item(each, chance.randbytes(size)) for each in keys])
                transaction.delete("rows", keys[:: chance.randrange(1, 3)])
                if chance.random() < 0.2:
                    transaction.drop("rows")
                transaction.commit()
        with lmdb.open(str(tmp_path / "store"), readonly=True, map_size=0) as opened:
            assert (tmp_path / "store" / "data.mdb").stat().st_size >= length_of(opened)
    assert look_through(tmp_path / "store") == ""


def test_a_store_that_is_whole_is_looked_through_and_kept(tmp_path: Path) -> None:
    fill(tmp_path / "store")
    assert look_through(tmp_path / "nothing") == look_through(tmp_path / "store") == ""
    with closing(LmdbStore(tmp_path / "store")) as store:
        assert store.lock()
        assert store.read(lambda s: s.count("rows")) == len(expected())
        transaction = store.begin()
        transaction.drop("rows")
        transaction.commit()
    assert look_through(tmp_path / "store") == ""


if __name__ == "__main__":
    main(sys.argv[1])
