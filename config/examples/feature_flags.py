"""Feature flags: one record for all instances of a service, checked, watched, and rolled back when it was wrong.

    python config/examples/feature_flags.py localhost:9092

In a service, ``ConfigStore`` runs in every instance, and ``ConfigWriter`` in the tool that operators use.
"""

from __future__ import annotations

import sys
import threading
from typing import Any, Literal

from pydantic import BaseModel, Field

from cdc.state import ConfigStore, ConfigWriter, Setting, TopicsConfig, ValueRefused


class Flags(BaseModel):
    """What may be switched, and how it is when nobody has switched it."""

    search: Literal["old", "new"] = "old"
    to_percent: int = Field(default=0, ge=0, le=100)


class Instance:
    """One instance of the service: ``flags.value`` is what counts now."""

    def __init__(self, options: dict[str, Any], topic: str, name: str) -> None:
        self._store = ConfigStore(options, topic)
        self._stopping = threading.Event()
        self.flags: Setting[Flags] = self._store.setting("feature-flags", Flags())
        self.flags.watch(lambda old, new: print(f"{name}: {old.to_percent} % -> {new.to_percent} %"))
        self._store.load()
        self._thread = threading.Thread(target=self._follow)
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._store.close()

    def _follow(self) -> None:
        while not self._stopping.is_set():
            self._store.poll(timeout_s=0.2)


def main(bootstrap: str = "localhost:9092", topic: str = "service-config") -> None:
    options = {"bootstrap.servers": bootstrap}
    with ConfigWriter(options, topic, {"feature-flags": Flags}, create=TopicsConfig(partitions=1)) as writer:
        good = writer.put("feature-flags", Flags(search="new", to_percent=10), by="ann")
        instance = Instance(options, topic, "instance 1")
        try:
            writer.put("feature-flags", {"to_percent": 1000}, by="bob")
        except ValueRefused as refused:
            print("refused:", refused.message.splitlines()[0])
        writer.put("feature-flags", Flags(search="new", to_percent=100), by="bob")
        newest = writer.rollback("feature-flags", good, by="ann")
        while instance.flags.version < newest:
            threading.Event().wait(0.05)
        instance.close()
        print("values that did not fit:", instance.flags.quarantined)
        for each in writer.versions("feature-flags"):
            print(each.version, each.by, (each.value or b"default").decode())


if __name__ == "__main__":
    main(*sys.argv[1:])
