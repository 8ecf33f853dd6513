"""What is noted of keys that the stream touches, and when it may be forgotten."""

from __future__ import annotations

from cdc.bridge.order.touched import Recording, TouchedKeys
from cdc.contract.snapshot import Snapshot

TOPIC = "shop.public.t"


def test_only_watched_topics_are_noted() -> None:
    touched = TouchedKeys()
    recording = touched.watch(TOPIC, {3, 5})
    assert set(touched.keys) == {TOPIC}
    assert recording.guard == {3, 5}
    touched.forget(recording)
    touched.forget(recording)
    assert not touched.keys


def test_each_recording_has_what_came_since_it_began() -> None:
    touched = TouchedKeys()
    recordings = []
    for xid in (7, 8, 9):
        recordings.append(touched.watch(TOPIC, ()))
        for keys in touched.keys[TOPIC]:
            keys[b"%d" % xid] = xid
        touched.emptied(TOPIC, xid)
        touched.emptied("shop.public.other", xid)
    touched.forget(recordings[1])
    assert touched.keys[TOPIC] == (recordings[0].keys, recordings[2].keys)
    assert recordings[0].keys == {b"7": 7, b"8": 8, b"9": 9}
    assert recordings[2].keys == {b"9": 9}
    assert [each.truncated for each in recordings] == [[7, 8, 9], [8, 9], [9]]


def test_a_truncate_that_the_snapshot_does_not_see_empties_it() -> None:
    recording = Recording(TOPIC, ())
    recording.truncated += [7, 12]
    assert recording.is_emptied(Snapshot(12, frozenset()))
    assert recording.is_emptied(Snapshot(20, frozenset({7})))
    assert not recording.is_emptied(Snapshot(13, frozenset()))


def test_pruning_keeps_what_some_snapshot_under_way_does_not_see() -> None:
    touched = TouchedKeys()
    recording = touched.watch(TOPIC, ())
    recording.keys.update({b"seen by both": 5, b"seen by one": 8, b"seen by none": 30})
    recording.prune([Snapshot(10, frozenset({8})), Snapshot(20, frozenset())])
    assert set(recording.keys) == {b"seen by one", b"seen by none"}
    assert touched.keys[TOPIC][0] is recording.keys  # the order engine holds on to it


def test_nothing_is_pruned_while_a_snapshot_is_unknown() -> None:
    recording = Recording(TOPIC, ())
    recording.keys[b"1"] = 5
    recording.prune(())
    assert recording.keys == {b"1": 5}
