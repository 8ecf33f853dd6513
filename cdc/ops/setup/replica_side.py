"""Looks at the replica: may the sink's role write there, and is it a different database than the source?"""

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
from cdc.sink.dialects import open_replica

_MISSING: Final = re.compile(r'database ".*" does not exist')


@dataclass(frozen=True, slots=True)
class SeenReplica:
    """The state of the replica database.

    Attributes:
        address: ``user@host:port/database``, for people; empty if the role could not connect.
        role: the sink's role.
        lacks_rights: whether the commands of ``cdc grants sink`` are needed.
        refusal: why the role cannot connect yet; empty if it can.
        lacks_database: whether the server said that the database does not exist.
    """

    address: str
    role: str
    lacks_rights: bool
    refusal: str = ""
    lacks_database: bool = False


def look_at_replica(
    config: Config, tables: Sequence[TableInfo], source: SourceIdentity | None, admin: str
) -> SeenReplica:
    """Look at the replica as the sink's role. If the role cannot connect yet, that is not an error: grants follow.

    Args:
        config: a configuration with a section ``sink``.
        tables: the tables that will be mirrored.
        source: the source database; None if it was not looked at.
        admin: libpq keywords of another user, who may find out whether the database exists; empty for none.

    Raises:
        ReplicaUnavailable: the server does not answer.
        ConfigError: the replica is the source itself or a standby, or a replica table cannot have its name.
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
    if found.standby_remedy:
        raise ConfigError("--replica does not accept writes: it is a standby", remedy=found.standby_remedy)
    return SeenReplica(found.address, role, bool(found.lacks))


def _lacks_database(config: Config, error: ReplicaRefused, admin: str) -> bool:
    """Whether the database is missing. A server that does not know the role says only that; so ask as ``admin``."""
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
