"""``cdc grants``: prints the rights that bridge and sink need, and no more, as commands to paste. Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, TypeAlias

import psycopg
import typer
from typer.core import TyperGroup

from cdc.base.config import Config
from cdc.base.errors import SourceRefused
from cdc.base.pgroles import comment, role_and_database
from cdc.bridge.scope.acls import kafka_grants
from cdc.bridge.scope.outboxes import find_outboxes
from cdc.bridge.scope.topics import state_topic_schema
from cdc.bridge.source.catalog import find_tables
from cdc.bridge.source.connect import LOOK_S, connect
from cdc.bridge.source.grants import Capture, capture_grants
from cdc.bridge.source.publication import inspect_publication
from cdc.bridge.source.rights import secured_tables
from cdc.bridge.source.row_filter import applies, why_not_filtered
from cdc.bridge.source.table import TableInfo, why_unusable
from cdc.cli.options import ConfigOption, load_config
from cdc.ops.setup.conninfo import over

_CALLED: Final[Mapping[str, str]] = {"replica": "sink", "target": "sink", "bridge": "source", "view": "kafka"}
"""Other names that people use for a part. They are too different for click to suggest the right command."""


class _Parts(TyperGroup):
    """The commands for each part that needs rights; suggests one if the name is a common other name."""

    # Any, because the real types are click's, and some versions of typer contain click under a private name.
    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        """Returns the command that the arguments name."""
        if meant := _CALLED.get(args[0]):
            ctx.fail(f"No such command {args[0]!r}. Did you mean {meant!r}? (cdc grants {meant})")
        return super().resolve_command(ctx, args)


grants_app = typer.Typer(
    cls=_Parts,
    help="Print the rights that bridge and sink need, and no more, as commands to paste.",
    no_args_is_help=True,
)

AdminOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--admin",
        metavar="KEYWORDS",
        help="Read the catalog as another user, if the bridge's own role does not exist yet: libpq keywords that "
        "replace those of source.dsn, such as user=postgres. The password comes from PGPASSWORD or ~/.pgpass.",
    ),
]


@grants_app.command("source")
def source(config: ConfigOption = None, admin: AdminOption = "") -> None:
    """Print the SQL for the bridge's role in the source database: role, grants and publication for the captured tables.

    Run the SQL as a superuser, or as the tables' owner if somebody else creates the role.

    Examples:

        cdc grants source -c shop.yaml --admin user=postgres > bridge-role.sql

        cdc grants source -c shop.yaml --admin user=postgres | psql 'host=db dbname=shop user=postgres'
    """
    loaded = load_config(config)
    role, database = role_and_database("source", loaded.source.connection())
    with _look(loaded, admin) as conn:
        found, name = _tables(conn, loaded), loaded.source.publication
        unfit = {each: why.reason for each in _usable(found) if (why := why_not_filtered(conn, each)) is not None}
        tables = [each for each in found if each not in unfit]
        state = inspect_publication(conn, name)
        carried = [] if state is None else [each for each in _usable(tables) if each.qualified_name in state.tables]
        lines = capture_grants(
            Capture(
                role=role,
                database=database,
                tables=tables,
                grows=any("*" in pattern for pattern in loaded.source.tables),
                secured=secured_tables(conn, _usable(tables)),
                publication=name,
                mode=loaded.source.publication_mode,
                state=state,
                outboxes=find_outboxes(conn, loaded),
                unfit=list(unfit.values()),
                unlike=[each for each in carried if not applies(conn, name, each)],
            )
        )
    typer.echo("\n".join([comment(f"In database {database} of the source: what bridge {loaded.name} needs."), *lines]))


@grants_app.command("sink")
def sink(config: ConfigOption = None, admin: AdminOption = "") -> None:
    """Print the SQL for the sink's role in the replica database: role, grants and schemas. The sink creates its tables.

    Examples:

        cdc grants sink -c shop.yaml | psql 'host=replica dbname=shop user=postgres'
    """
    loaded = load_config(config)
    # Imported here, because it loads SQLAlchemy, which the other commands of this module do not need.
    from cdc.sink.dialects import open_replica

    replica = open_replica(loaded, application_name="cdc grants")
    naming = replica.naming
    with _look(loaded, admin) as conn:
        schemas = {naming.name(state_topic_schema(loaded, info)).schema for info in _usable(_tables(conn, loaded))}
    typer.echo("\n".join(replica.grants(schemas)))


@grants_app.command("kafka")
def kafka(config: ConfigOption = None) -> None:
    """Print the kafka-acls.sh commands for bridge, sink and view; admin.properties has your administrator's settings.

    Examples:

        cdc grants kafka -c shop.yaml

        CDC_KAFKA__OPTIONS='{"sasl.username": "cdc-sink"}' cdc grants kafka -c shop.yaml
    """
    loaded = load_config(config)
    typer.echo("\n".join(kafka_grants(loaded)))


def _look(config: Config, admin: str) -> psycopg.Connection[tuple[object, ...]]:
    arguments = config.source.connection()
    if admin:
        arguments = {"conninfo": over(arguments, admin)}
    try:
        return connect(arguments, application_name="cdc grants", lock_timeout_s=LOOK_S)
    except SourceRefused as error:
        if admin:
            raise
        raise SourceRefused(
            error.message, remedy="if this role does not exist yet, or has no rights yet, add: --admin user=postgres"
        ) from None


def _usable(tables: Sequence[TableInfo]) -> list[TableInfo]:
    """Returns the tables that can be captured; the others need no rights."""
    return [each for each in tables if why_unusable(each) is None]


def _tables(conn: psycopg.Connection[tuple[object, ...]], config: Config) -> tuple[TableInfo, ...]:
    source = config.source
    tables = find_tables(conn, source.tables, source.exclude, source.keys, source.rows)
    if not tables:
        raise SourceRefused(
            f"no table matches source.tables ({', '.join(source.tables)})",
            remedy="correct source.tables, or create the tables first",
        )
    return tables
