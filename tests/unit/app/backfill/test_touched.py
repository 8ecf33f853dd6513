"""What is noted of keys that the stream touches, and when it may be forgotten."""

from __future__ import annotations

from cdc.app.backfill.touched import TouchedKeys
from cdc.capture.reread import Snapshot

TOPIC = "shop.public.t"


def test_only_watched_topics_are_noted() -> None:
    touched = TouchedKeys()
    touched.watch(TOPIC, {3, 5})
    assert set(touched.keys) == {TOPIC}
    assert touched.guard(TOPIC) == {3, 5}
    touched.forget(TOPIC)
    assert not touched.keys


def test_watching_anew_forgets_what_was_noted() -> None:
    touched = TouchedKeys()
    touched.watch(TOPIC, ())
    touched.keys[TOPIC][b"1"] = 9
    touched.truncated[TOPIC].append(9)
    touched.watch(TOPIC, ())
    assert touched.keys[TOPIC] == {}
    assert not touched.is_emptied(TOPIC, Snapshot(9, frozenset()))


def test_a_truncate_that_the_snapshot_does_not_see_empties_it() -> None:
    touched = TouchedKeys()
    touched.watch(TOPIC, ())
    touched.truncated[TOPIC] += [7, 12]
    assert touched.is_emptied(TOPIC, Snapshot(12, frozenset()))
    assert touched.is_emptied(TOPIC, Snapshot(20, frozenset({7})))
    assert not touched.is_emptied(TOPIC, Snapshot(13, frozenset()))


def test_pruning_keeps_what_some_snapshot_under_way_does_not_see() -> None:
    touched = TouchedKeys()
    touched.watch(TOPIC, ())
    keys = touched.keys[TOPIC]
    keys.update({b"seen by both": 5, b"seen by one": 8, b"seen by none": 30})
    touched.prune(TOPIC, [Snapshot(10, frozenset({8})), Snapshot(20, frozenset())])
    assert touched.keys[TOPIC] is keys  # the translator holds on to it
    assert set(keys) == {b"seen by one", b"seen by none"}


def test_nothing_is_pruned_while_a_snapshot_is_unknown() -> None:
    touched = TouchedKeys()
    touched.watch(TOPIC, ())
    touched.keys[TOPIC][b"1"] = 5
    touched.prune(TOPIC, ())
    assert touched.keys[TOPIC] == {b"1": 5}
