"""Damaged messages: whatever happens to the bytes, a valid message or a ``DecodeError`` comes out, never anything else.

Each distinct kind and shape of captured message is cut at every byte, lengthened, and has bytes flipped by a seeded
generator. ``SEED=7 python -m pytest tests/property/test_decode_damage.py`` tries another seed.
"""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Iterator

import pytest

from cdc.base.errors import DecodeError
from cdc.bridge.decode.pgoutput import Message, PgOutputDecoder
from tests.golden.files import MAJORS, messages
from tests.support.pgoutput import encoded

SEED = int(os.environ.get("SEED", "1"))
FLIPS = 40
STATEFUL = b"RYSEcA"
"""Tags of the messages that the decoder remembers; after damage to one of them it starts afresh."""

STREAMS = [(major, protocol) for major in MAJORS for protocol in (1, 2)]


class Shape:
    """A captured message of a new kind and length, and the decoder's state before it."""

    def __init__(self, before: list[bytes], data: bytes) -> None:
        self.data = data
        self._before = before
        self._decoder = self._fresh()

    def _fresh(self) -> PgOutputDecoder:
        decoder = PgOutputDecoder()
        for data in self._before:
            decoder.decode(data)
        return decoder

    def decode(self, damaged: bytes) -> Message:
        if damaged and damaged[0] in STATEFUL:
            return self._fresh().decode(damaged)
        return self._decoder.decode(damaged)


def shapes(major: int, protocol: int) -> Iterator[Shape]:
    seen: set[tuple[int, int]] = set()
    before: list[bytes] = []
    for data in messages(major, protocol):
        if (data[0], len(data)) not in seen:
            seen.add((data[0], len(data)))
            yield Shape(before.copy(), data)
        if data[0] in STATEFUL:
            before.append(data)


@pytest.mark.parametrize(("major", "protocol"), STREAMS)
def test_rows_say_all_that_was_sent(major: int, protocol: int) -> None:
    decoder = PgOutputDecoder()
    for data in messages(major, protocol):
        message = decoder.decode(data)
        assert encoded(message, decoder.stream_xid) in (None, data)


@pytest.mark.parametrize(("major", "protocol"), STREAMS)
def test_no_part_of_a_message_is_a_message(major: int, protocol: int) -> None:
    for shape in shapes(major, protocol):
        for cut in range(len(shape.data)):
            with pytest.raises(DecodeError):
                shape.decode(shape.data[:cut])


@pytest.mark.parametrize(("major", "protocol"), STREAMS)
@pytest.mark.parametrize("more", [b"\0", b"n", b"\0\0\0\0", b"N\0\1n"])
def test_nothing_may_follow_a_message(major: int, protocol: int, more: bytes) -> None:
    for shape in shapes(major, protocol):
        with pytest.raises(DecodeError):
            shape.decode(shape.data + more)


@pytest.mark.parametrize(("major", "protocol"), STREAMS)
def test_flipped_bytes(major: int, protocol: int) -> None:
    rng = random.Random(SEED)
    for shape in shapes(major, protocol):
        for _ in range(FLIPS):
            damaged = bytearray(shape.data)
            for _ in range(rng.choice((1, 1, 1, 2, 8))):
                # Heads and lengths are where damage matters: half of the hits go to the first bytes.
                damaged[rng.randrange(min(len(damaged), rng.choice((40, len(damaged)))))] = rng.randrange(256)
            assert_message_or_refusal(shape, bytes(damaged), f"SEED={SEED} {bytes(damaged[:60]).hex()}")


@pytest.mark.parametrize(("major", "protocol"), STREAMS[:1])
def test_random_bytes_behind_every_tag(major: int, protocol: int) -> None:
    rng = random.Random(SEED)
    last = list(shapes(major, protocol))[-1]
    for tag in range(256):
        for _ in range(FLIPS):
            damaged = bytes([tag]) + rng.randbytes(rng.randrange(60))
            assert_message_or_refusal(last, damaged, f"SEED={SEED} {damaged.hex()}")


def assert_message_or_refusal(shape: Shape, damaged: bytes, replay: str) -> None:
    try:
        message = shape.decode(damaged)
    except DecodeError:
        return
    except Exception as error:
        raise AssertionError(f"neither message nor DecodeError: {replay}") from error
    xid = struct.unpack_from(">I", damaged, 1)[0] if shape._decoder.stream_xid is not None else None
    assert encoded(message, xid) in (None, damaged), f"bytes were lost: {replay}"
