"""``cdc topics plan`` and ``apply``: show which settings should change and why, and make the safe changes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Annotated, TypeAlias

import typer

from cdc.base.config import Config
from cdc.base.errors import ConfigError
from cdc.cli.options import ConfigOption
from cdc.cli.topics_options import (
    BootstrapOption,
    ClientOption,
    JsonOption,
    TopicsArgument,
    connection,
    progress,
    show,
    show_json,
    wanted,
)
from cdc.ops.jobs.answers import SOMETHING_WRONG, answering
from cdc.topics.cluster import Cluster
from cdc.topics.plan import SettingChange
from cdc.topics.planning import plan
from cdc.topics.scan import Begin

SetOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Plan for this value of a setting; may be repeated."),
]


@answering
def show_plan(
    topics: TopicsArgument = None,
    config: ConfigOption = None,
    bootstrap: BootstrapOption = None,
    client: ClientOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show which settings should change, and why. Changes nothing.

    For topics of the bridge, the configuration's section topics says what the settings should be. For other topics, the
    plan has the values that suit any topic with state.

    Exit code 0 when there is nothing to change, 1 when there is, 2 when a topic could not be read.

    Examples:

        cdc topics plan -c shop.yaml

        cdc topics plan users -b localhost:9092 --set delete.retention.ms=604800000
    """
    options, loaded = connection(config, bootstrap, client)
    with Cluster(options) as cluster, progress() as begin:
        found = _plans(cluster, topics, loaded, _overrides(settings), begin)
    if as_json:
        show_json({"topics": [_document(topic, each) for topic, each in found.items()]})
    else:
        for topic, each in found.items():
            show(topic, None, _lines(each, safe="would change"))
    if any(found.values()):
        raise typer.Exit(SOMETHING_WRONG)


@answering
def apply_plan(
    topics: TopicsArgument = None,
    config: ConfigOption = None,
    bootstrap: BootstrapOption = None,
    client: ClientOption = None,
    settings: SetOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Make the safe changes of a plan, after asking. A change that may lose rows or deletes is left to you.

    Exit code 0 when all settings are right now, 1 when a change was refused, 2 when it could not be done.

    Examples:

        cdc topics apply -c shop.yaml

        cdc topics apply users -b localhost:9092 --set segment.ms=3600000 --yes
    """
    options, loaded = connection(config, bootstrap, client)
    with Cluster(options) as cluster:
        with progress() as begin:
            found = _plans(cluster, topics, loaded, _overrides(settings), begin)
        for topic, each in found.items():
            show(topic, None, _lines(each, safe="to change"))
        safe = {topic: [one for one in each if one.is_safe] for topic, each in found.items()}
        count = sum(len(each) for each in safe.values())
        if count and not yes:
            typer.confirm(f"Make {count} changes?", abort=True)
        for topic, each in safe.items():
            if each:
                cluster.alter(topic, {one.setting: one.wanted for one in each})
    typer.echo(f"{count} changed")
    if any(not one.is_safe for each in found.values() for one in each):
        raise typer.Exit(SOMETHING_WRONG)


def _plans(
    cluster: Cluster, topics: list[str] | None, config: Config | None, overrides: dict[str, str], begin: Begin
) -> dict[str, list[SettingChange]]:
    by_topic = wanted(cluster, topics, config)
    settings = cluster.settings(list(by_topic))
    return {
        topic: plan(cluster, places, settings[topic], config=config, overrides=overrides, begin=begin)
        for topic, places in by_topic.items()
    }


def _overrides(settings: list[str] | None) -> dict[str, str]:
    pairs = [each.partition("=") for each in settings or ()]
    if wrong := [name for name, equals, _ in pairs if not equals]:
        raise ConfigError(f"--set {wrong[0]} has no value", remedy=f"write --set {wrong[0]}=VALUE")
    return {name: value for name, _, value in pairs}


def _document(topic: str, found: list[SettingChange]) -> dict[str, object]:
    return {"topic": topic, "changes": [{**dataclasses.asdict(each), "safe": each.is_safe} for each in found]}


def _lines(found: list[SettingChange], *, safe: str) -> Iterator[str]:
    if not found:
        yield "  as wanted"
    for each in found:
        mark, what = (" ", safe) if each.is_safe else ("!", "refused")
        reason = f" ({each.reason})" if each.reason else ""
        yield f"{mark} {what}: {each.setting} {each.found} → {each.wanted}{reason}"
        if each.refusal:
            yield f"    because {each.refusal}"
        if each.by_hand:
            yield f"    if you know that it is right, do it by hand: {each.by_hand}"
    yield ""
