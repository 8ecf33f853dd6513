"""Topic names: legal, reversible, never shared."""

from __future__ import annotations

import random
import re

import pytest

from cdc.base.errors import ConfigError
from cdc.contract.naming import (
    collisions,
    history_topic,
    progress_topic,
    schemas_topic,
    topic_name,
)


@pytest.mark.parametrize(
    ("namespace", "table", "topic"),
    [
        ("public", "orders", "shop.public.orders"),
        ("public", "Orders_2", "shop.public.Orders_2"),
        ("public", "or.ders", "shop.public.or-2Eders"),
        ("public", "or-ders", "shop.public.or-2Dders"),
        ('Quoted_" . Schema', "a b", "shop.Quoted_-22-20-2E-20Schema.a-20b"),
        ("public", "žluť", "shop.public.-C5-BElu-C5-A5"),
        ("public", "__progress", "shop.public.__progress"),
    ],
)
def test_names(namespace: str, table: str, topic: str) -> None:
    assert topic_name("shop", namespace, table) == topic


def test_names_are_legal_and_distinct() -> None:
    rng = random.Random(1)
    alphabet = 'aZ09_.-%" é😀\x01/-2E'
    topics: dict[str, tuple[str, str]] = {}
    for _ in range(2000):
        parts = ("".join(rng.choices(alphabet, k=rng.randrange(1, 6))), "".join(rng.choices(alphabet, k=3)))
        topic = topic_name("n", *parts)
        assert re.fullmatch(r"[A-Za-z0-9._-]+", topic)
        assert topics.setdefault(topic, parts) == parts


def test_too_long_names_the_configuration_key() -> None:
    with pytest.raises(ConfigError, match=r"public\.ž+ has \d+ characters") as raised:
        topic_name("shop", "public", "ž" * 31 + "ž" * 12)
    assert "topics.names" in raised.value.remedy
    assert topic_name("shop", "public", "ž" * 43, {"public." + "ž" * 43: "short"}) == "short"


@pytest.mark.parametrize("configured", ["a b", "..", ".", "é", "a/b"])
def test_configured_names_must_be_legal(configured: str) -> None:
    with pytest.raises(ConfigError, match=r"topics\.names"):
        topic_name("shop", "public", "t", {"public.t": configured})


def test_companions() -> None:
    assert progress_topic("shop") == "shop.__progress"
    assert schemas_topic("shop") == "shop.__schemas"
    assert history_topic("shop.public.orders") == "shop.public.orders.history"


def test_names_that_kafka_takes_for_the_same() -> None:
    assert collisions(["a.b", "c"], ["a_b", "a.b", "c"]) == [("a.b", "a_b")]
    assert collisions(["shop.public.orders.history"], ["shop.public.orders_history"]) != []
    assert collisions(["a.b", "a.c"], ["a.b", "a.c"]) == []


def test_names_of_other_metrics_do_not_collide() -> None:
    assert collisions(["a.b"], ["c"]) == []


def test_a_name_as_long_as_kafka_allows_is_taken() -> None:
    table = "t" * (249 - len("shop.public."))
    assert len(topic_name("shop", "public", table)) == 249
    with pytest.raises(ConfigError, match="has 250 characters"):
        topic_name("shop", "public", f"{table}t")
