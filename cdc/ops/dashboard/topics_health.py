"""What is known about topics without reading them: settings, sizes, and how long tombstones stay. Asked rarely."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from cdc.contract.compaction import topic_settings
from cdc.topics.budget import TombstoneReader, budget
from cdc.topics.cluster import Cluster, PartitionPlace
from cdc.topics.lint import Subject, lint


def topics_health(
    options: Mapping[str, Any], wanted: Collection[str], readers: Sequence[TombstoneReader]
) -> dict[str, Any]:
    """Returns the health of topics, the largest first.

    Args:
        options: librdkafka settings from the configuration.
        wanted: the names of the topics; missing topics are left out.
        readers: who must see every tombstone, and how far each is behind.

    Raises:
        TopicRefused: the user may not see a topic or its settings.
        TopicUnavailable: no broker answers.
    """
    with Cluster(options) as cluster:
        places = {name: found for name, found in cluster.places(()).items() if name in wanted}
        settings = cluster.settings(list(places))
        sizes = cluster.sizes([each for found in places.values() for each in found])
    topics = [_topic(name, found, settings[name], sizes, readers) for name, found in places.items()]
    return {"topics": sorted(topics, key=lambda each: -(each["bytes"] or 0)), "bytes": _sum(sizes.values())}


def _topic(
    name: str,
    places: Sequence[PartitionPlace],
    settings: Mapping[str, str],
    sizes: Mapping[tuple[str, int], int],
    readers: Sequence[TombstoneReader],
) -> dict[str, Any]:
    parsed = topic_settings(settings)
    found = lint(Subject(name, settings, min(len(each.replicas) for each in places)))
    findings = [{**dataclasses.asdict(each), "by": "cdc topics lint"} for each in found]
    left = budget(name, parsed, readers, rebuild_ms=0)
    if left.state != "kept":
        level = "error" if left.state == "broken" else "warning"
        told = {"level": level, "code": f"tombstones_{left.state}", "text": left.text, "remedy": left.remedy}
        findings.append({**told, "by": "cdc topics tombstones"})
    return {
        "topic": name,
        "partitions": len(places),
        "replicas": min(len(each.replicas) for each in places),
        "bytes": _sum(sizes[key] for each in places if (key := (each.topic, each.partition)) in sizes),
        "is_compacted": parsed.is_compacted,
        "min_compaction_lag_ms": parsed.min_compaction_lag_ms,
        "max_compaction_lag_ms": parsed.max_compaction_lag_ms,
        "tombstones_ms": left.window_ms,
        "needed_ms": left.needed_ms,
        "findings": findings,
    }


def _sum(found: Any) -> int | None:
    sizes = list(found)
    return sum(sizes) if sizes else None
