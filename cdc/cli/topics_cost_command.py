"""``cdc topics estimate``, ``tombstones`` and ``rebuild-test``: what a topic costs its cleaner and its readers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Annotated

import typer

from cdc.base.words import counted, duration, size
from cdc.cli.options import ConfigOption
from cdc.cli.topics_options import (
    BootstrapOption,
    ClientOption,
    JsonOption,
    TopicArgument,
    connection,
    duration_ms,
    now_ms,
    progress,
    show,
    show_json,
)
from cdc.contract.compaction import topic_settings
from cdc.ops.jobs.answers import SOMETHING_WRONG, answering
from cdc.topics.budget import Budget, TombstoneReader, budget
from cdc.topics.cluster import Cluster
from cdc.topics.cost_display import cost_document, cost_lines, cost_table
from cdc.topics.estimation import estimate
from cdc.topics.readers import readers
from cdc.topics.rebuild import rebuild

_MB = 1_000_000


@answering
def estimate_cost(
    topic: TopicArgument,
    config: ConfigOption = None,
    bootstrap: BootstrapOption = None,
    client: ClientOption = None,
    throughput: Annotated[
        float | None,
        typer.Option(
            "--throughput",
            min=0.001,
            metavar="MB/S",
            help="How much the cleaner may read and write in total; the broker's throttle by default.",
            show_default=False,
        ),
    ] = None,
    buffer: Annotated[
        int | None,
        typer.Option(
            "--buffer",
            min=1_048_577,
            metavar="BYTES",
            help="log.cleaner.dedupe.buffer.size; the broker's value by default.",
            show_default=False,
        ),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads", min=1, help="log.cleaner.threads; the broker's value by default.", show_default=False
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate what the next cleaning of a topic costs: passes, bytes read and written, time, free disk.

    It reads the topic, and fills maps of keys as the cleaner would. It suggests a ratio, a segment size and a buffer
    size.

    Examples:

        cdc topics estimate shop.public.orders -c shop.yaml --throughput 50

        cdc topics estimate users -b localhost:9092 --buffer 536870912 --threads 2 --json | jq .seconds
    """
    options, _ = connection(config, bootstrap, client)
    with Cluster(options) as cluster, progress() as begin:
        places = cluster.places([topic])[topic]
        cleaner = cluster.cleaner()
        cleaner = dataclasses.replace(
            cleaner, buffer_bytes=buffer or cleaner.buffer_bytes, threads=threads or cleaner.threads
        )
        found = estimate(cluster, places, cluster.settings([topic])[topic], cleaner, begin=begin)
    bytes_per_s = throughput * _MB if throughput else cleaner.io_bytes_per_s
    if as_json:
        show_json(cost_document(found, bytes_per_s))
    else:
        show(topic, cost_table(found), cost_lines(found, bytes_per_s))


@answering
def tombstones(
    topic: TopicArgument,
    config: ConfigOption = None,
    bootstrap: BootstrapOption = None,
    client: ClientOption = None,
    slowest_reader: Annotated[
        str | None,
        typer.Option(
            "--slowest-reader",
            metavar="DURATION",
            help="How long your slowest reader may be away, in addition to the consumer groups of the topic.",
            show_default=False,
        ),
    ] = None,
    rebuild_time: Annotated[
        str | None,
        typer.Option(
            "--rebuild-time",
            metavar="DURATION",
            help="How long a rebuild takes; by default, the topic is read to measure it.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare how long tombstones stay with what readers need: their lag, and the time of a rebuild.

    Exit code 0 when tombstones stay at least twice as long as needed, 1 when not, 2 when the topic could not be read.

    Examples:

        cdc topics tombstones shop.public.orders -c shop.yaml

        cdc topics tombstones users -b localhost:9092 --slowest-reader 3d --rebuild-time 2h
    """
    options, _ = connection(config, bootstrap, client)
    with Cluster(options) as cluster, progress() as begin:
        places = cluster.places([topic])[topic]
        settings = topic_settings(cluster.settings([topic])[topic])
        groups = [dataclasses.replace(each, name=f"group {each.name}") for each in readers(cluster, places, now_ms())]
        if slowest_reader is not None:
            groups.append(TombstoneReader("the slowest reader", duration_ms(slowest_reader), 0))
        if rebuild_time is not None:
            rebuild_ms = duration_ms(rebuild_time)
        else:
            rebuild_ms = round(rebuild(cluster, places, begin=begin).seconds * 1_000)
    found = budget(topic, settings, groups, rebuild_ms)
    if as_json:
        needs = {"readers": [dataclasses.asdict(each) for each in groups], "rebuild_ms": rebuild_ms}
        show_json({**dataclasses.asdict(found), **needs})
    else:
        show(topic, None, _budget_lines(found, groups, rebuild_ms))
    if found.state != "kept":
        raise typer.Exit(SOMETHING_WRONG)


def _budget_lines(found: Budget, groups: list[TombstoneReader], rebuild_ms: int) -> Iterator[str]:
    yield f"{' ' if found.state == 'kept' else '!'} {found.state}: {found.text}"
    if found.remedy:
        yield f"    what to do: {found.remedy}"
    for name, lag_ms, offsets in map(dataclasses.astuple, groups):
        yield f"  {name}: lag {duration(lag_ms)}, {counted(offsets, 'offset')}"
    yield f"  a rebuild: {duration(rebuild_ms)}"


@answering
def rebuild_test(
    topic: TopicArgument,
    config: ConfigOption = None,
    bootstrap: BootstrapOption = None,
    client: ClientOption = None,
    as_json: JsonOption = False,
) -> None:
    """Read a topic from its beginning to its end, and show how long that took and how much state it holds.

    Examples:

        cdc topics rebuild-test shop.public.orders -c shop.yaml

        cdc topics rebuild-test users -b localhost:9092 --json | jq .seconds
    """
    options, _ = connection(config, bootstrap, client)
    with Cluster(options) as cluster, progress() as begin:
        found = rebuild(cluster, cluster.places([topic])[topic], begin=begin)
    if as_json:
        rates = {"records_per_second": found.records_per_s, "bytes_per_second": found.bytes_per_s}
        memory = {"memory_per_million_keys": found.memory_per_million}
        show_json({"topic": topic, **dataclasses.asdict(found), **rates, **memory})
        return
    end = "exact" if found.whole else "up to the last stable offset, because a Kafka transaction is open"
    show(
        topic,
        None,
        [
            f"  {found.seconds:,.1f} s until {end}; {found.cpu_seconds:,.1f} s of CPU here",
            f"  {counted(found.records, 'record')}, {size(found.size)}: {found.records_per_s:,.0f} records/s, "
            f"{size(round(found.bytes_per_s))}/s",
            f"  {counted(found.keys, 'key')} with a row, {counted(found.tombstones, 'tombstone')}; a million such keys "
            f"take about {size(found.memory_per_million)} in a Python dict",
        ],
    )
