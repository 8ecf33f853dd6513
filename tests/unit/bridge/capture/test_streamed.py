"""Streamed transactions against a model: the same frames as without streaming, whatever the blocks were."""

from __future__ import annotations

import os
import random
import struct
import tempfile
from collections.abc import Iterator
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import IO

import pytest

from cdc.base.errors import DecodeError, SourceUndecodable, SpillError
from cdc.base.lsn import LSN
from cdc.bridge.capture.spill import Spill
from cdc.bridge.capture.streamed import StreamedTransactions
from cdc.bridge.decode.pgoutput import PgOutputDecoder
from cdc.bridge.decode.walsender import XLOG_DATA_HEADER_BYTES
from cdc.bridge.decoding import Decoding
from cdc.contract.change import Begin, Commit, Insert, Relation
from cdc.contract.record import Progress, SourceIdentity
from tests.golden.files import MAJORS, messages
from tests.support.streaming_server import Server, frame, in_reads


class Socket:
    """Gives out frames in given reads; an empty one is a drained socket."""

    def __init__(self, reads: Iterator[list[bytes]] | list[list[bytes]]) -> None:
        self._reads = iter(reads)
        self.is_closed = False
        self.signs_of_life = 0

    def read(self, max_frames: int) -> list[bytes]:
        frames = next(self._reads, None)
        self.is_closed = frames is None
        return frames or []

    def live(self) -> None:
        self.signs_of_life += 1

    def batches(self, streamed: StreamedTransactions) -> Iterator[list[bytes]]:
        while not self.is_closed:
            yield streamed.read(512)


class Disk:
    """The files of spills."""

    def __init__(self) -> None:
        self._files: list[IO[bytes]] = []

    def spill(self, xid: int) -> Spill:
        return Spill(xid, self._open)

    def _open(self) -> IO[bytes]:
        self._files.append(tempfile.TemporaryFile())  # noqa: SIM115 - the spill closes it
        return self._files[-1]

    @property
    def held(self) -> int:
        """Bytes on disk now."""
        return sum(os.fstat(each.fileno()).st_size for each in self._files if not each.closed)


def ordinary(reads: Iterator[list[bytes]] | list[list[bytes]]) -> list[bytes]:
    """Messages that come out, without keepalives; nothing may be left on disk."""
    socket, disk = Socket(reads), Disk()
    streamed = StreamedTransactions(socket.read, socket.live, disk.spill)
    with closing(streamed):
        frames = [each for batch in socket.batches(streamed) for each in batch]
        assert disk.held == 0
    return [each[XLOG_DATA_HEADER_BYTES:] for each in frames if each[:1] == b"w"]


def changes(messages: list[bytes]) -> list[bytes]:
    """All but descriptions of relations and types, which survive a rollback and may be repeated."""
    return [each for each in messages if each[:1] not in b"RY"]


@pytest.mark.parametrize("seed", range(40))
def test_blocks_make_no_difference(seed: int) -> None:
    """One history, not streamed and streamed in three ways; a few transactions of it begin before xid 2^32."""
    first_xid = 2**32 - 20 if seed % 2 else 700
    plain = Server(random.Random(seed), None, first_xid)
    plain.run(300)
    assert changes(ordinary(in_reads(plain.sent, random.Random(seed)))) == changes(plain.expected)
    for blocks in range(3):
        server = Server(random.Random(seed), random.Random(blocks), first_xid)
        server.run(300)
        assert server.expected == plain.expected
        assert changes(ordinary(in_reads(server.sent, random.Random(seed)))) == changes(plain.expected)


@pytest.mark.parametrize("major", MAJORS)
def test_bytes_of_real_servers(major: int) -> None:
    """Blocks, a rolled back savepoint and transaction, ALTER TABLE inside, TRUNCATE, a message; then a small one."""
    decoder = PgOutputDecoder()
    decoded = [decoder.decode(message) for message in ordinary([[frame(each) for each in messages(major, 2)]])]
    kinds = [type(each).__name__ for each in decoded if not isinstance(each, Relation)]
    assert [(kind, len(list(group))) for kind, group in groupby(kinds)] == [
        ("Begin", 1),
        ("Insert", 450),
        ("Update", 300),
        ("LogicalMessage", 1),
        ("Truncate", 1),
        ("Commit", 1),
        ("Begin", 1),
        ("Insert", 1),
        ("Commit", 1),
    ]
    begin, commit = decoded[0], next(each for each in decoded if isinstance(each, Commit))
    assert isinstance(begin, Begin)
    assert (begin.final_lsn, begin.commit_ts) == (commit.commit_lsn, commit.commit_ts)
    inserted = [each.new[0] for each in decoded if isinstance(each, Insert)]
    assert inserted == [b"%d" % number for number in (*range(1001, 1451), 7)]


def start(xid: int) -> bytes:
    return frame(b"S" + struct.pack(">IB", xid, 1))


def change(xid: int, content: bytes) -> bytes:
    return frame(b"I" + struct.pack(">I", xid) + content)


def described(xid: int, relation: int, content: bytes) -> bytes:
    return frame(b"R" + struct.pack(">II", xid, relation) + content)


STOP = frame(b"E")


def commit(xid: int) -> bytes:
    return frame(b"c" + struct.pack(">IBQQq", xid, 0, 200, 210, 5))


def test_a_relation_is_known_after_the_savepoint_in_which_it_was_described_is_rolled_back() -> None:
    """The server describes it once for the whole transaction."""
    block = [start(7), change(8, b"a"), described(9, 1, b"x"), change(9, b"b"), STOP]
    gone = [frame(b"A" + struct.pack(">II", 7, xid)) for xid in (9, 8)]
    rest = [start(7), change(7, b"c"), STOP, commit(7)]
    assert ordinary([[*block, *gone, *rest]])[1:-1] == [b"R" + struct.pack(">I", 1) + b"x", b"Ic"]


@pytest.mark.parametrize("is_told_again", [False, True])
def test_an_older_description_does_not_outlive_a_newer_one(is_told_again: bool) -> None:
    """ALTER PUBLICATION waits for no transaction: one that runs was told the old columns, others the new ones."""
    old, new = (b"R" + struct.pack(">I", 1) + content for content in (b"old", b"new"))
    root = b"R" + struct.pack(">I", 2) + b"root"
    small = [frame(b"B1"), frame(root), frame(new), frame(b"I1"), frame(b"C1")]
    again = [described(7, 1, b"newer"), change(7, b"b")] if is_told_again else []
    running = [start(7), described(7, 1, b"old"), change(7, b"a"), STOP, *small, start(7), *again, STOP, commit(7)]
    found = ordinary([[*running, frame(b"B2"), frame(b"I2")]])
    behind = found[[each[:1] for each in found].index(b"C", 5) + 1 :]
    assert found[:5] == [each[XLOG_DATA_HEADER_BYTES:] for each in small]
    assert found[6] == old
    assert behind == ([b"B2", b"I2"] if is_told_again else [root, new, b"B2", b"I2"])


def test_a_block_is_no_drained_socket() -> None:
    """The bridge would sleep on a drained one, with frames waiting in the client library."""
    socket, disk = Socket([[start(7), change(7, b"a")], [change(7, b"b")], [], [STOP]]), Disk()
    streamed = StreamedTransactions(socket.read, socket.live, disk.spill)
    assert [bool(streamed.read(512)) for _ in range(4)] == [True, True, False, True]
    assert disk.held == 2 * 6
    streamed.close()
    assert disk.held == 0


def test_keepalives_and_small_transactions_pass_a_running_one() -> None:
    small = [frame(b"B1"), frame(b"I1"), frame(b"C1")]
    alive = b"k" + struct.pack(">QqB", 150, 0, 1)
    socket = Socket([[start(7), change(7, b"a"), alive, STOP, *small, start(7)], [STOP, commit(7), *small]])
    streamed = StreamedTransactions(socket.read, socket.live)
    assert streamed.read(512) == [alive, *small]
    begin = b"B" + struct.pack(">QqI", 200, 5, 7)
    end = b"C" + struct.pack(">BQQq", 0, 200, 210, 5)
    assert [streamed.read(512) for _ in range(4)] == [[frame(begin)], [frame(b"Ia")], [frame(end)], small]


def test_a_large_transaction_comes_back_in_small_batches_with_signs_of_life() -> None:
    rows = [change(7, b"%08d" % number * 20) for number in range(20_000)]
    huge = change(7, b"x" * 3_000_000)
    socket = Socket([[start(7), *rows, huge, *rows, STOP], [commit(7)]])
    streamed = StreamedTransactions(socket.read, socket.live)
    batches = [batch for batch in socket.batches(streamed) if batch and batch[0][:1] == b"w"]
    assert sum(map(len, batches)) == 1 + 40_001 + 1, "Begin, rows, Commit"
    sizes = [sum(map(len, batch)) for batch in batches]
    assert sorted(sizes)[-2] < 400_000
    assert max(sizes) < 3_000_000 + 400_000
    assert socket.signs_of_life == len(batches) - 2


def test_a_streamed_transaction_without_changes_of_ours_still_moves_the_position() -> None:
    assert [each[:1] for each in ordinary([[start(7), STOP, commit(7), commit(8)]])] == [b"B", b"C", b"B", b"C"]


@pytest.mark.parametrize(
    ("frames", "words"),
    [
        ([start(7), start(8)], "StreamStart message, byte 0: inside a streamed block"),
        ([start(7), commit(7)], "StreamCommit message, byte 0: inside a streamed block"),
        ([STOP], "no streamed block is open"),
        ([start(7), frame(b"C" + bytes(25))], "tag b'C', truncated or inside a streamed block"),
        ([start(7), frame(b"I\0\0")], "tag b'I', truncated"),
        ([frame(b"c\0")], "StreamCommit message"),
    ],
)
def test_contradictions_are_refused(frames: list[bytes], words: str) -> None:
    with pytest.raises(DecodeError, match=words):
        ordinary([frames])


def test_a_full_disk_is_told_with_what_to_do() -> None:
    def on_a_full_disk(xid: int) -> Spill:
        return Spill(xid, lambda: Path("/dev/full").open("r+b", buffering=0))

    if not Path("/dev/full").exists():
        pytest.skip("no device that is always full")
    socket = Socket([[start(7), change(7, b"a"), STOP]])
    streamed = StreamedTransactions(socket.read, socket.live, on_a_full_disk)
    with pytest.raises(
        SpillError, match=r"transaction 7, which is still running, cannot be written in .*No space left"
    ) as e:
        streamed.read(512)
    assert "TMPDIR" in e.value.remedy
    streamed.close()


def test_a_directory_that_is_missing_is_told() -> None:
    def nowhere() -> IO[bytes]:
        return Path("/nowhere/at/all").open("w+b")

    with pytest.raises(SpillError, match=r"cannot be opened in .*No such file"):
        Spill(7, nowhere)


def test_nothing_is_left_in_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even while it is in use: a killed process leaves nothing behind."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    spill = Spill(7)
    spill.extend([change(7, b"a")])
    assert list(tmp_path.iterdir()) == []
    spill.close()


def told(xid: int, content: bytes) -> bytes:
    """A logical message in a block, which names the transaction whatever subtransaction emitted it."""
    return frame(b"M" + struct.pack(">I", xid) + content)


def test_a_savepoint_that_is_rolled_back_after_messages_ends_the_stream() -> None:
    """Nobody can tell which of them are gone. Messages after a rollback, and of other transactions, do no harm."""
    stop, abort = frame(b"E"), frame(b"A" + struct.pack(">II", 7, 8))
    harmless = [start(7), change(8, b"gone"), stop, start(9), told(9, b"m"), stop, abort, start(7), told(7, b"m"), stop]
    socket, disk = Socket([harmless, [start(7), change(8, b"row"), stop, abort]]), Disk()
    streamed = StreamedTransactions(socket.read, socket.live, disk.spill)
    with closing(streamed):
        streamed.read(512)
        with pytest.raises(
            SourceUndecodable, match="transaction 7 rolled back a savepoint after logical messages"
        ) as e:
            streamed.read(512)
    assert e.value.is_of_streaming
    decoding = Decoding("slot", streaming=True)
    assert decoding.failed(e.value, Progress(LSN(1), None, 0, SourceIdentity("7", 1, 5))) is e.value
    assert not decoding.streaming
