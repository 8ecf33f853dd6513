"""Duplicates by event time, against a definition that keeps everything; positions; and a filter that may not decide."""

from __future__ import annotations

import gc
import math
import os
import random
import sys
import time

import pytest

from cdc.base.errors import ConfigError
from cdc.base.lsn import LSN
from cdc.state.bloom import BloomFilter, bloom_size, measure_bloom
from cdc.state.deduplication import Deduplicator, DuplicateVerdict, HighWater


def by_definition(messages: list[tuple[str, str, int]], window_ms: int, lateness_ms: int) -> list[DuplicateVerdict]:
    """Looks through everything that was ever new."""
    verdicts: list[DuplicateVerdict] = []
    accepted: list[tuple[str, str, int]] = []
    newest = -math.inf
    for key, message_id, at in messages:
        newest = max(newest, at)
        if at < newest - lateness_ms:
            verdicts.append(DuplicateVerdict.TOO_LATE)
        elif any((key, message_id) == each[:2] and abs(at - each[2]) <= window_ms for each in accepted):
            verdicts.append(DuplicateVerdict.DUPLICATE)
        else:
            accepted.append((key, message_id, at))
            verdicts.append(DuplicateVerdict.NEW)
    return verdicts


def test_it_says_what_the_definition_says() -> None:
    seed = int(os.environ.get("SEED", random.randrange(10**6)))
    sys.stdout.write(f"SEED={seed}\n")
    rng = random.Random(seed)
    seen = set()
    for _ in range(300):
        window_ms, lateness_ms = rng.randrange(1, 30), rng.choice((0, 5, 40))
        now, messages = 0, []
        for _ in range(rng.randrange(120)):
            now += rng.choice((0, 1, 3, 20))
            at = now - rng.choice((0, 0, 1, 10, 50))
            messages.append((rng.choice("ab"), rng.choice("xyz"), at))
        judge = Deduplicator(window_ms, lateness_ms=lateness_ms).judge
        verdicts = [judge(*each) for each in messages]
        assert verdicts == by_definition(messages, window_ms, lateness_ms), (window_ms, lateness_ms, messages)
        seen |= set(verdicts)
    assert seen == set(DuplicateVerdict)


def test_keys_have_ids_of_their_own() -> None:
    window = Deduplicator(60_000)
    assert window.judge("alice", 1, 1_000) is DuplicateVerdict.NEW
    assert window.judge("bob", 1, 1_000) is DuplicateVerdict.NEW
    assert window.judge("alice", 1, 61_000) is DuplicateVerdict.DUPLICATE
    assert window.judge("alice", 1, 61_001) is DuplicateVerdict.NEW


def test_memory_is_bounded_by_the_window_and_a_message_costs_the_same_however_many_are_remembered() -> None:
    small, large = Deduplicator(100), Deduplicator(100_000)
    spent = {}
    gc.disable()  # it looks through whatever else this process holds, the more often the more is remembered
    for name, window, messages in (("small", small, 100_000), ("large", large, 100_000)):
        began = time.process_time()
        for at in range(messages):
            window.judge("k", at, at)
            assert len(window) <= 101 or window is large
        spent[name] = time.process_time() - began
    gc.enable()
    assert (len(small), len(large)) == (101, 100_000)
    assert spent["large"] < 10 * spent["small"], spent
    assert large.judge("k", -1, 10**9) is DuplicateVerdict.NEW
    assert len(large) == 1


@pytest.mark.parametrize(("window_ms", "lateness_ms"), [(0, 0), (-1, 0), (1, -1)])
def test_a_window_that_remembers_nothing_is_refused(window_ms: int, lateness_ms: int) -> None:
    with pytest.raises(ConfigError, match="remembers nothing"):
        Deduplicator(window_ms, lateness_ms=lateness_ms)


def test_high_water_lets_each_position_through_once_whatever_is_repeated() -> None:
    marks: HighWater[LSN] = HighWater()
    stream = [("a", 5), ("b", 3), ("a", 7), ("a", 5), ("a", 7), ("b", 4), ("b", 3), ("a", 8)]
    assert [marks.advance(key, LSN(at)) for key, at in stream] == [True, True, True, False, False, True, False, True]
    again = HighWater(marks.positions)
    assert not again.advance("a", LSN(8))
    assert again.advance("a", LSN(9))
    assert marks.positions == {"a": 8, "b": 4}, "the one that goes on has positions of its own"


def test_high_water_takes_whatever_sorts() -> None:
    marks: HighWater[tuple[int, int]] = HighWater()
    assert [marks.advance("a", each) for each in [(7, 1), (7, 2), (7, 1), (6, 9), (8, 0)]] == [
        *(True, True, False, False, True)
    ]


def test_the_size_of_a_bloom_filter() -> None:
    size = bloom_size(1_000_000, 0.01)
    assert (size.bits, size.hashes) == (9_585_059, 7), "k is 6.64, and rounded"
    assert size.size_bytes / 2**20 == pytest.approx(1.14, abs=0.01)


@pytest.mark.parametrize(("items", "rate"), [(0, 0.1), (-1, 0.1), (1, 0), (1, 1), (1, 1.5), (1, -0.1)])
def test_a_size_that_cannot_be_is_refused(items: int, rate: float) -> None:
    with pytest.raises(ConfigError, match="no Bloom filter holds"):
        bloom_size(items, rate)


def test_what_is_surely_new_is_new() -> None:
    rng = random.Random(7)
    bloom, shown = BloomFilter(2_000, 0.05, seed=7), set()
    for _ in range(5_000):  # more than it was made for: then it is less sure, and still never wrong
        item = b"%d" % rng.randrange(4_000)
        if bloom.is_surely_new(item):
            assert item not in shown
        bloom.add(item)
        shown.add(item)
    assert not any(bloom.is_surely_new(item) for item in shown)


@pytest.mark.parametrize("rate", [0.1, 0.01])
def test_the_measured_rate_is_that_of_theory(rate: float) -> None:
    measured = measure_bloom(10_000, rate, asked=20_000, seed=42)
    deviation = math.sqrt(measured.expected * (1 - measured.expected) / measured.asked)
    assert abs(measured.measured - measured.expected) < 4 * deviation
    assert measured.expected <= rate * 1.02, "rounded down, there would be more than asked for"
    assert measured == measure_bloom(10_000, rate, asked=20_000, seed=42)
    assert f"measured {measured.measured:.4%}, theory {measured.expected:.4%}" in str(measured)
