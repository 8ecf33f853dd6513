"""Sessions: a service reads events, and keeps what it knows of each user through crashes.

    python config/examples/sessions.py localhost:9092

Kill it at any moment and start it again: every event counts once. Start a second one with another instance name
(``sessions.py localhost:9092 page-events two``), and the two share the partitions.
"""

from __future__ import annotations

import signal
import sys
import threading

import orjson

from cdc.state import ChangelogStore, PartitionState, StoredRecord


def follow(event: StoredRecord, sessions: PartitionState) -> None:
    """A login opens a session, a logout closes it, whatever else happens is counted in it."""
    if event.key is None or event.value is None:
        return
    action = orjson.loads(event.value)
    session = sessions.get(event.key)
    if action["type"] == "logout":
        sessions.delete(event.key)
    elif action["type"] == "login" or session is None:
        sessions.put(event.key, {"since": action["at"], "last_seen": action["at"], "actions": 0})
    else:
        sessions.put(event.key, {**session, "last_seen": action["at"], "actions": session["actions"] + 1})


def main(bootstrap: str, source: str, instance: str, stopping: threading.Event, app: str = "shop-sessions") -> None:
    """Follow the source until told to stop; the sessions are in the topic ``{app}-sessions-changelog``."""
    options = {"bootstrap.servers": bootstrap}
    with ChangelogStore(options, app=app, store="sessions", source=source, instance=instance) as store:
        while not stopping.is_set():
            if store.step(follow):
                print("open sessions:", sum(1 for part in store.parts.values() for _ in part.items()))


if __name__ == "__main__":
    told = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: told.set())
    given = [*sys.argv[1:], *["localhost:9092", "page-events", "one"][len(sys.argv) - 1 :]]
    main(given[0], given[1], given[2], told)
