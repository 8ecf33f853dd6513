"""Where a key belongs, as Kafka's own tests have it, and as librdkafka's partitioner decides."""

from __future__ import annotations

import pytest

from cdc.contract.partition import murmur2, partition_of


@pytest.mark.parametrize(
    ("data", "signed"),
    [  # UtilsTest.testMurmur2 of Apache Kafka
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_as_kafka_hashes(data: bytes, signed: int) -> None:
    assert murmur2(data) == signed % 2**32


def test_the_sign_is_cut_off() -> None:
    assert partition_of(b"21", 1_000) == (-973932308 & 0x7FFFFFFF) % 1_000
