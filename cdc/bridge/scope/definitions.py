"""Finds a table that a person names, and the definitions that its topic was written with."""

from __future__ import annotations

from cdc.base.config import Config
from cdc.base.errors import ConfigError
from cdc.base.table_names import parts
from cdc.bridge.scope.topics import state_topic
from cdc.contract.naming import schemas_topic
from cdc.contract.record import TableSchema
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.replay.definitions import read_definitions


def named(table: str) -> tuple[str, str]:
    """Returns schema and table.

    Raises:
        ConfigError: the text is not the name of a table.
    """
    instead = "write schema.table, for instance public.orders; a schema with a dot in quotes: '\"my.schema\".orders'"
    try:
        namespace, name = parts(table)
    except ValueError as error:
        raise ConfigError(f"invalid table name {table}: {error}", remedy=instead) from None
    if not (namespace and name):
        raise ConfigError(f"invalid table name {table!r}", remedy=instead)
    return namespace, name


def definitions_of(config: Config, table: str) -> list[TableSchema]:
    """Returns every definition of a table's topic, at least one; the newest is the last.

    Raises:
        ConfigError: the text is not the name of a table, or nothing of the table was ever published.
        CdcError: Kafka does not answer.
    """
    topic = state_topic(config, *named(table))
    known = read_definitions(BrokerAdmin(config.kafka.client_options()), schemas_topic(config.name))
    if found := [each for each in known if each.topic == topic]:
        return found
    # The name of a schema with a dot, typed without its quotes, or with quotes that the shell took away.
    like = sorted({each.qualified_name for each in known if table == f"{each.namespace}.{each.name}"})
    raise ConfigError(
        f"nothing was published of table {table} yet",
        remedy=f"write '{like[0]}': its schema has a dot" if like else "cdc tables list shows what is captured",
    )
