"""A look at the replica: whether the sink's role may write there, and that it is not the source itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import SecretStr

from cdc.base.config import Config
from cdc.base.errors import CdcError, ConfigError, ReplicaRefused
from cdc.bridge.scope.topics import state_topic_schema
from cdc.bridge.source.table import TableInfo
from cdc.contract.record import SourceIdentity
from cdc.ops.setup.conninfo import over, role_of, user_of
from cdc.ops.setup.source_side import APPLICATION
from cdc.sink.postgres.database import open_replica
from cdc.sink.postgres.errors import ELSEWHERE

_MISSING: Final = re.compile(r'database ".*" does not exist')


@dataclass(frozen=True, slots=True)
class SeenReplica:
    """The replica database.

    Attributes:
        address: ``user@host:port/database``, for people; empty when the role could not connect.
        lacks_rights: the commands of ``cdc grants sink`` are needed.
        refusal: why the role cannot connect yet; empty when it can.
        lacks_database: as far as we may know, the database is not there.
    """

    address: str
    role: str
    lacks_rights: bool
    refusal: str = ""
    lacks_database: bool = False


def look_at_replica(
    config: Config, tables: Sequence[TableInfo], source: SourceIdentity | None, admin: str
) -> SeenReplica:
    """Look as the sink's role. A server that does not let it in yet is no error: that is what the grants are for.

    Args:
        config: with a section ``sink``.
        tables: that will be mirrored.
        source: the source database; None when it was not looked at.
        admin: libpq keywords of somebody else, who may know whether the database is there; empty for nobody.

    Raises:
        ReplicaUnavailable: nobody answers there.
        ConfigError: it is the source itself, it takes no writes, or a name cannot be.
    """
    assert config.sink is not None
    role = role_of(config.sink.connection())
    replica = open_replica(config, application_name=APPLICATION)
    naming = replica.naming
    names = [naming.name(state_topic_schema(config, info)) for info in tables]
    try:
        found = replica.inspect(names, source)
    except ReplicaRefused as error:
        return SeenReplica("", role, True, error.message, _lacks_database(config, error, admin))
    if found.is_source:
        raise ConfigError(
            "--replica is the source database itself: its tables would be mirrored onto themselves",
            remedy="name another database; to mirror into a schema of the same one, set sink.schema in the file later",
        )
    if found.is_standby:
        raise ConfigError("--replica takes no writes: it is a standby", remedy=ELSEWHERE)
    return SeenReplica(found.address, role, bool(found.lacks))


def _lacks_database(config: Config, error: ReplicaRefused, admin: str) -> bool:
    """A server says first that it does not know the role; somebody whom it knows is told of the database."""
    assert config.sink is not None
    said = error.message
    if admin:
        dsn = SecretStr(over(config.sink.connection(), user_of(admin)))
        sink = config.sink.model_copy(update={"dsn": dsn, "password": None})
        replica = open_replica(config.model_copy(update={"sink": sink}), application_name=APPLICATION)
        try:
            replica.inspect((), None)
        except CdcError as other:
            said = other.message
    return _MISSING.search(said) is not None
