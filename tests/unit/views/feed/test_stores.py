"""Where the two stores of a view are."""

from __future__ import annotations

import pytest

from cdc.base.config import Config, ViewConfig
from cdc.base.errors import ConfigError
from cdc.views.feed.stores import TABLES, TOPICS, ViewStores, place_of
from cdc.views.store.port import Item, Key

CONFIG = Config.model_validate({"name": "shop", "kafka": {"bootstrap": "k:9092"}, "view": {"store": "memory"}})


@pytest.mark.parametrize(
    ("store", "place"),
    [
        ("/var/view", "/var/view/tables"),
        ("redis://redis:6379/3", "redis://redis:6379/3?prefix=shop%3Atables"),
        ("rediss://user@redis/0?prefix=mine", "rediss://user@redis/0?prefix=mine%3Atables"),
    ],
)
def test_places(store: str, place: str) -> None:
    assert place_of(ViewConfig.model_validate({"store": store}), "shop", TABLES) == place


def test_stores_in_memory_are_the_same_each_time_and_two() -> None:
    stores = ViewStores(CONFIG)
    writer, reader = stores.open(TABLES), stores.open(TABLES, read_only=True)
    assert writer.lock()
    transaction = writer.begin()
    transaction.put("s", [Item(Key(b"k", b"k"), b"v")])
    transaction.commit()
    assert (reader.version(), stores.open(TOPICS).version()) == (1, 0)


def test_without_a_section_there_is_no_view() -> None:
    with pytest.raises(ConfigError, match="there is no view section"):
        ViewStores(CONFIG.model_copy(update={"view": None}))
