"""Which settings of a topic should be others, why, and whether changing them is safe. Pure.

Safe is what can be taken back and loses nothing. A change that may delete rows or tombstones, move keys or stop a
writer is refused: the plan says what has to be true first, and a person does it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from cdc.base.errors import ConfigError
from cdc.base.words import counted
from cdc.contract.compaction import SETTING_RULES, alter, policies, short_segments, writers_date_records


@dataclass(frozen=True, slots=True)
class SettingChange:
    """One setting that differs from what is wanted.

    Attributes:
        reason: what the wanted value is for.
        refusal: why it is not changed by a program; empty when it is safe.
        by_hand: the command for a person who knows that it is right; empty where none is right.
    """

    topic: str
    setting: str
    found: str
    wanted: str
    reason: str
    refusal: str = ""
    by_hand: str = ""

    @property
    def is_safe(self) -> bool:
        """Whether ``cdc topics apply`` makes it."""
        return not self.refusal


@dataclass(frozen=True, slots=True)
class TopicStanding:
    """A topic as it is.

    Attributes:
        settings: as Kafka writes them, and ``partitions``.
        replicas: copies of the partition that has fewest.
        keyless: its records without a key; None when nobody looked.
        is_state: somebody said that only the newest record of each key counts.
    """

    topic: str
    settings: Mapping[str, str]
    replicas: int
    keyless: int | None = None
    is_state: bool = False


def changes(standing: TopicStanding, wanted: Mapping[str, str]) -> list[SettingChange]:
    """What differs; safe changes first."""
    found = [_change(standing, name, value) for name, value in sorted(wanted.items()) if differs(standing, name, value)]
    return sorted(found, key=lambda each: not each.is_safe)


def differs(standing: TopicStanding, setting: str, wanted: str) -> bool:
    """Whether a setting is another; a setting that the broker does not know is not missed."""
    found = standing.settings.get(setting)
    if found is None:
        return False
    if setting == "cleanup.policy":
        return policies(found) != policies(wanted)
    try:
        return float(found) != float(wanted)
    except ValueError:
        return found != wanted


def check_wishes(found: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    """Checks that the brokers know each setting that a person asks for: an unknown one must not look fulfilled.

    Args:
        found: the topic's settings, and ``partitions``.
        wanted: what the person wrote.

    Raises:
        ConfigError: a setting is unknown, or a value is not a number.
    """
    for name, value in wanted.items():
        if name not in found:
            near = get_close_matches(name, found, 1)
            raise ConfigError(
                f"--set {name}: unknown topic setting",
                remedy=f"did you mean {near[0]}?" if near else f"choose one of {', '.join(sorted(found))}",
            )
        if (number := _number(name, found[name])) is not None and not isinstance(_number(name, value), type(number)):
            raise ConfigError(f"invalid number in --set {name}={value}", remedy=f"write one, such as {found[name]}")


def _number(setting: str, text: str) -> float | int | None:
    """Returns a number as the broker reads it, or None if the text is not a number."""
    try:
        return float(text) if setting == "min.cleanable.dirty.ratio" else int(text)
    except ValueError:
        return None


def general_settings(standing: TopicStanding) -> dict[str, str]:
    """What suits any state topic, where its own settings do not: for topics that no configuration describes."""
    wanted = {"cleanup.policy": "compact"}
    for name, rule in SETTING_RULES.items():
        if name == "message.timestamp.after.max.ms" and not writers_date_records(standing.settings):
            continue
        if rule.least is not None:
            wanted[name] = str(max(int(standing.settings.get(name) or rule.least), rule.least))
        elif rule.most is not None:
            wanted[name] = str(min(int(standing.settings.get(name) or rule.most), rule.most))
    if standing.replicas >= 3:
        wanted["min.insync.replicas"] = str(max(int(standing.settings.get("min.insync.replicas") or 1), 2))
    return wanted


def _change(standing: TopicStanding, setting: str, wanted: str) -> SettingChange:
    found = standing.settings[setting]
    refusal = next(_refusals(standing, setting, found, wanted), "")
    reason = SETTING_RULES[setting].reason if setting in SETTING_RULES else ""
    by_hand = alter(standing.topic, f"{setting}={wanted}") if refusal and setting != "partitions" else ""
    return SettingChange(standing.topic, setting, found, wanted, reason, refusal, by_hand)


def _refusals(standing: TopicStanding, setting: str, found: str, wanted: str) -> Iterator[str]:
    if setting == "partitions":
        yield "keys would move, and one in two partitions is never compacted as one: write into a new topic instead"
    elif setting == "cleanup.policy":
        yield from _policy_refusals(standing, found, wanted)
    elif setting == "min.insync.replicas" and int(wanted) > standing.replicas:
        yield f"there are {standing.replicas} copies: nobody could write any more"
    elif setting not in SETTING_RULES:
        yield "nobody here knows whether it loses anything"
    elif (fault := short_segments(setting, wanted)) is not None:
        yield fault
    elif (lowering := SETTING_RULES[setting].lowering) and _lowers(found, wanted):
        yield lowering


def _policy_refusals(standing: TopicStanding, found: str, wanted: str) -> Iterator[str]:
    if "delete" in policies(wanted):
        yield "retention would delete records that are kept now"
    elif "compact" not in policies(found):
        if standing.keyless is None:
            yield "nobody looked for records without a key, which the cleaner drops"
        elif standing.keyless:
            yield f"{counted(standing.keyless, 'record')} without a key would be dropped by the cleaner"
        elif not standing.is_state:
            yield (
                "only the newest record of each key would stay, and nobody said that the others do not count, as those "
                "of events do: if it holds state, add --set cleanup.policy=compact"
            )


def _lowers(found: str, wanted: str) -> bool:
    # -1 is for ever.
    return int(wanted) >= 0 and (int(found) < 0 or int(wanted) < int(found))
