"""Inventory: movements are events, what is in stock is their state, and any number of shop fronts cache it.

    python config/examples/inventory_cache.py localhost:9092

Events may be deltas; the state is absolute. Both are written together, so the stock can be proven from its movements.
"""

from __future__ import annotations

import sys
from typing import Any

from cdc.state import EventSourced, StateReader, TopicsConfig


def stock(state: dict[str, Any] | None, event: dict[str, Any]) -> dict[str, Any] | None:
    """What is in stock after a movement; None for a product that is no longer sold."""
    if event["type"] == "discontinued":
        return None
    on_hand = state["on_hand"] if state else 0
    sign = {"received": 1, "sold": -1}[event["type"]]
    return {"on_hand": on_hand + sign * event["pieces"]}


class ShopFront:
    """Answers from memory."""

    def __init__(self, options: dict[str, Any], topic: str) -> None:
        self._cache = StateReader(options, topic)
        self._cache.load()

    def on_hand(self, product: str) -> int:
        entry = self._cache.get(product)
        return 0 if entry is None else entry.content["on_hand"]

    def refresh(self) -> None:
        """Everything that was committed before this call is in."""
        self._cache.load()

    def close(self) -> None:
        self._cache.close()


def main(bootstrap: str = "localhost:9092", events: str = "inventory-events", state: str = "inventory") -> None:
    options = {"bootstrap.servers": bootstrap}
    with EventSourced(options, events=events, state=state, apply=stock, create=TopicsConfig(partitions=3)) as inventory:
        inventory.append("apple", {"type": "received", "pieces": 50}, {"type": "sold", "pieces": 8})
        inventory.append("pear", {"type": "received", "pieces": 20})
        print("products whose events had no state yet:", inventory.caught_up)
        front = ShopFront(options, state)
        print("apples:", front.on_hand("apple"), "pears:", front.on_hand("pear"))
        inventory.append("apple", {"type": "sold", "pieces": 2})
        inventory.append("pear", {"type": "discontinued"})
        front.refresh()
        print("apples:", front.on_hand("apple"), "pears:", front.on_hand("pear"))
        front.close()
        print("differences between stock and movements:", inventory.verify())


if __name__ == "__main__":
    main(*sys.argv[1:])
