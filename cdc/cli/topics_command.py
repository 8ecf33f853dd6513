"""``cdc topics``: looks at compacted topics of any program, without Spark and without JMX."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Annotated

import typer

from cdc.cli.options import ConfigOption
from cdc.cli.topics_cost_command import estimate_cost, rebuild_test, tombstones
from cdc.cli.topics_options import (
    BootstrapOption,
    ClientOption,
    JsonOption,
    TopicArgument,
    TopicsArgument,
    connection,
    duration_ms,
    now_ms,
    progress,
    show,
    show_json,
    wanted,
)
from cdc.cli.topics_plan_command import apply_plan, show_plan
from cdc.ops.jobs.answers import SOMETHING_WRONG, answering
from cdc.topics.bridge import ConfiguredBridge
from cdc.topics.cluster import Cluster
from cdc.topics.display import as_document, as_lines, as_table, as_title
from cdc.topics.formats import FormatsOfRows
from cdc.topics.inspection import inspect
from cdc.topics.lint import Lint, Subject, lint
from cdc.topics.partitioner import PlacementCensus
from cdc.topics.placement_display import placement_document, placement_lines, placement_table
from cdc.topics.scan import KeyRead, read_keys
from cdc.topics.share_groups import share_groups

topics_app = typer.Typer(
    help="Look at compacted topics of any program: why they are not compacted, and what that costs.",
    no_args_is_help=True,
)


topics_app.command("estimate")(estimate_cost)
topics_app.command("tombstones")(tombstones)
topics_app.command("rebuild-test")(rebuild_test)
topics_app.command("plan")(show_plan)
topics_app.command("apply")(apply_plan)


@topics_app.command("inspect")
@answering
def inspect_topics(
    topics: TopicsArgument = None,
    config: ConfigOption = None,
    bootstrap: BootstrapOption = None,
    client: ClientOption = None,
    newest: Annotated[
        int | None,
        typer.Option(
            "--newest",
            min=1,
            metavar="N",
            help="Read only the newest N offsets of each partition; all by default.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what partitions hold and why they are not being compacted, each reason with the command that helps.

    It reads each partition twice: first its batches as they lie on disk, then its records. It reads one partition after
    the other, and needs about 250 MB of memory per million keys.

    Exit code 0 when waiting is enough, 1 when you have to act, 2 when a topic could not be read.

    Examples:

        cdc topics inspect -c shop.yaml

        cdc topics inspect dbserver1.inventory.orders --bootstrap localhost:9092

        cdc topics inspect users -b kafka:9093 -X security.protocol=SSL -X ssl.ca.location=ca.pem --newest 1000000

        cdc topics inspect -b localhost:9092 --json | jq '.topics[].partitions[].verdicts[0].code'
    """
    options, loaded = connection(config, bootstrap, client)
    reports = []
    with Cluster(options) as cluster, progress() as begin:
        for name, places in wanted(cluster, topics, loaded).items():
            settings = cluster.settings([name])[name]
            reports.append(inspect(cluster, places, settings, now_ms=now_ms(), newest=newest, begin=begin))
    if as_json:
        show_json(as_document(reports))
    else:
        for report in reports:
            show(as_title(report), as_table(report), [*as_lines(report), ""])
    if any(each.needs_someone for each in reports):
        raise typer.Exit(SOMETHING_WRONG)


@topics_app.command("lint")
@answering
def lint_topics(
    topics: TopicsArgument = None,
    config: ConfigOption = None,
    bootstrap: BootstrapOption = None,
    client: ClientOption = None,
    rebuild_time: Annotated[
        str | None,
        typer.Option(
            "--rebuild-time",
            metavar="DURATION",
            help="How long your slowest reader takes for the whole topic: tombstones must stay longer.",
            show_default=False,
        ),
    ] = None,
    newest: Annotated[
        int,
        typer.Option(
            "--newest", min=0, metavar="N", help="Look for bad records in the newest N offsets of each partition."
        ),
    ] = 10_000,
    as_json: JsonOption = False,
) -> None:
    """Find everything that makes a topic unfit to hold state: settings, copies, records without a key, readers.

    With a configuration, it also finds records in the bridge's topics that the bridge cannot have written.

    Exit code 0 when it finds nothing, 1 when it finds something, 2 when a topic could not be read.

    Examples:

        cdc topics lint -c shop.yaml

        cdc topics lint users sessions -b localhost:9092 --rebuild-time 36h

        cdc topics lint -b localhost:9092 --json | jq '.topics[].findings[] | select(.level == "error")'
    """
    options, loaded = connection(config, bootstrap, client)
    rebuild_ms = None if rebuild_time is None else duration_ms(rebuild_time)
    found: dict[str, list[Lint]] = {}
    with Cluster(options) as cluster, progress() as begin:
        by_topic = wanted(cluster, topics, loaded)
        settings = cluster.settings(list(by_topic))
        groups = _share_groups(cluster)
        bridge = None if loaded is None else ConfiguredBridge.of(loaded)
        for name, places in by_topic.items():
            subject = Subject(
                name,
                settings[name],
                min(len(each.replicas) for each in places),
                share_groups=[group for group, read in groups.items() if name in read],
                rebuild_ms=rebuild_ms,
            )
            subject = _looked_at(subject, read_keys(cluster, places, newest=newest, begin=begin), bridge)
            found[name] = lint(subject)
    _show_lints(found, as_json=as_json)
    if any(found.values()):
        raise typer.Exit(SOMETHING_WRONG)


def _looked_at(subject: Subject, records: Iterable[KeyRead], bridge: ConfiguredBridge | None) -> Subject:
    """Returns the subject with what its records show: no key, an empty value, not written by the bridge, formats."""
    keyless = empty = looked_at = 0
    foreign = None if bridge is None else bridge.records_of(subject.topic)
    formats = FormatsOfRows({} if bridge is None else bridge.written(subject.topic))
    for record in records:
        looked_at += 1
        keyless += record.key is None
        empty += record.is_empty
        formats.add(record.partition, record.key, record.head)
        if foreign is not None:
            foreign.add(record.partition, record.offset, record.key, record.header)
    others = () if bridge is None or foreign is None else foreign.found(bridge.published_by_now())
    return dataclasses.replace(
        subject, keyless=keyless, empty=empty, looked_at=looked_at, foreign=others, formats=formats.found()
    )


@topics_app.command("partitioner")
@answering
def partitioner(
    topic: TopicArgument,
    config: ConfigOption = None,
    bootstrap: BootstrapOption = None,
    client: ClientOption = None,
    top: Annotated[int, typer.Option("--top", min=0, max=100, help="How many of the busiest keys to name.")] = 5,
    as_json: JsonOption = False,
) -> None:
    """Show which partitioner put the keys where they are, and which keys lie in two partitions.

    A key in two partitions is never compacted as one key, and a tombstone deletes it in only one of them.

    Exit code 0 when each key is in one partition, 1 when a key is in several or writers disagree, 2 when the topic
    could not be read.

    Examples:

        cdc topics partitioner shop.public.orders -c shop.yaml

        cdc topics partitioner users -b localhost:9092 --json | jq '{partitioner, split: .split_count}'
    """
    options, _ = connection(config, bootstrap, client)
    with Cluster(options) as cluster, progress() as begin:
        places = cluster.places([topic])[topic]
        census = PlacementCensus(len(places))
        for each in read_keys(cluster, places, newest=None, begin=begin):
            census.add(each.partition, each.key)
    found = census.placement(top)
    if as_json:
        show_json({"topic": topic, **placement_document(found)})
    else:
        show(f"{topic}: {len(places)} partitions", placement_table(found), placement_lines(found))
    if not found.is_sound:
        raise typer.Exit(SOMETHING_WRONG)


def _share_groups(cluster: Cluster) -> dict[str, frozenset[str]]:
    return {name: read for broker in cluster.brokers() for name, read in share_groups(cluster.wire(broker)).items()}


def _show_lints(found: Mapping[str, list[Lint]], *, as_json: bool) -> None:
    if as_json:
        findings = {topic: [dataclasses.asdict(each) for each in lints] for topic, lints in found.items()}
        show_json({"topics": [{"topic": topic, "findings": each} for topic, each in findings.items()]})
        return
    for topic, lints in found.items():
        show(topic, None, _lint_lines(lints))


def _lint_lines(lints: list[Lint]) -> list[str]:
    if not lints:
        return ["  nothing to change", ""]
    lines = []
    for each in lints:
        lines += [f"  {each.level} {each.code}: {each.text}", f"    what to do: {each.remedy}"]
    return [*lines, ""]
