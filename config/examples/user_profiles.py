"""User profiles: one writer, one record for each user, and no edit that silently undoes another one.

    python config/examples/user_profiles.py localhost:9092

Five users register, and edit. A form shows a profile with its version. Who saves it first wins; the second one is
told, and sees what is there.
"""

from __future__ import annotations

import sys
from typing import Any

from pydantic import BaseModel

from cdc.state import ABSENT, StateProducer, StateReader, TopicsConfig, VersionConflict


class Profile(BaseModel):
    """Absolute values only: a profile says how things are, not how they changed."""

    name: str
    email: str
    age: int


class Profiles:
    """What a service would offer over HTTP."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        options = {"bootstrap.servers": bootstrap}
        self._producer = StateProducer(options, topic, create=TopicsConfig(partitions=3))

    def register(self, user: str, profile: Profile) -> bool:
        """False when the user exists already."""
        return self.save(user, profile, ABSENT)

    def show(self, user: str) -> tuple[dict[str, Any] | None, int]:
        """The profile, and its version for ``save``."""
        return self._producer.get(user), self._producer.version(user)

    def save(self, user: str, profile: Profile, version: int) -> bool:
        """False when somebody saved another one since ``show`` gave out this version."""
        try:
            self._producer.put(user, profile, expected=version)
        except VersionConflict:
            return False
        return True

    def remove(self, user: str) -> None:
        """Delete the user, also from every cache that follows the topic."""
        self._producer.delete(user)

    def close(self) -> None:
        self._producer.close()


def main(bootstrap: str = "localhost:9092", topic: str = "user-profiles") -> None:
    profiles = Profiles(bootstrap, topic)
    for number, name in enumerate(("Alice", "Bob", "Cleo", "Dora", "Eve"), 1):
        profiles.register(f"user-{number}", Profile(name=name, email=f"{name.lower()}@example.org", age=20 + number))
    print("registered twice:", profiles.register("user-1", Profile(name="Al", email="al@example.org", age=3)))
    _, version = profiles.show("user-1")
    print("Ann saves:", profiles.save("user-1", Profile(name="Alice Johnson", email="a@example.org", age=21), version))
    print(
        "Bob saves, too late:", profiles.save("user-1", Profile(name="Alice", email="aj@example.org", age=21), version)
    )
    profiles.remove("user-5")
    profiles.close()
    with StateReader({"bootstrap.servers": bootstrap}, topic) as state:
        state.load()
        for key in sorted(state):
            print(key.decode(), entry.content if (entry := state.get(key)) else None)


if __name__ == "__main__":
    main(*sys.argv[1:])
