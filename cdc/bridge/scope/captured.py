"""Keeps the captured tables with their keys, topics and encoders; creates and checks topics on the way."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import Any

import psycopg
import structlog

from cdc import __version__
from cdc.base.config import Config
from cdc.base.errors import CdcError, GapError, RegistryRefused, RegistryUnavailable, SourceLocked, TopicRefused
from cdc.bridge.capture.reading import columns_of, shape_of
from cdc.bridge.encode import TableEncoder, ValueForm
from cdc.bridge.order.demand import Demand
from cdc.bridge.order.succession import FOR_A_PERSON, NewBeginning, Successions, shape_change
from cdc.bridge.scope.choice import choose, refuse, renamed, tell, tell_of_renamed, unusable
from cdc.bridge.scope.formats import TableFormats
from cdc.bridge.scope.hidden import hiding_of, misfit, published, published_columns, rules_told
from cdc.bridge.scope.left_out import LeftOut
from cdc.bridge.scope.outboxes import Outboxes
from cdc.bridge.scope.row_rules import RowRules
from cdc.bridge.scope.topics import bookkeeping_topics, history_topics, state_topic, topic_specifications
from cdc.bridge.source.catalog import table_info
from cdc.bridge.source.table import TableInfo
from cdc.contract.change import Relation, ReplicaIdentity
from cdc.contract.formats.debezium.envelope import EnvelopeMaker
from cdc.contract.membership import Membership
from cdc.contract.naming import schemas_topic
from cdc.contract.patterns import in_scope
from cdc.contract.pgtypes import sql_type
from cdc.contract.record import SchemaColumn, TableSchema, WrittenSchema
from cdc.contract.schema import formed, numbered, schema_column, schema_key, schema_value, table_schema
from cdc.kafka.publish.topics import TopicAdmin
from cdc.kafka.registry import SchemaRegistry

Produce = Callable[[str, bytes, bytes | None, bytes], None]

log = structlog.get_logger("cdc.bridge")


class CapturedTables:
    """The tables in scope, and an encoder for each relation that the stream describes.

    Args:
        config: the whole configuration.
        connection: looks up tables.
        admin: creates topics.
        told: tables that were reported as left out in this process, and why.
        before: tables that were captured before, with the oid of each; None when nothing was ever published.
        refuse_foreign: raises ``TopicRefused`` when one of these topics holds another program's records.

    Attributes:
        config: the whole configuration.
        successions: the definition that each topic was last written with; set it before the first ``encoder``.
        histories: the history topic of each state topic; grows with the tables.
        envelopes: makes the envelopes of all tables; None if values are rows and nothing else.
        members: what carried each table in the publication when the session began.
        outboxes: the outbox tables.
        rows: the row filters in force.
        left_out: tables that the patterns match but that cannot be captured; grows with what the stream brings.
    """

    def __init__(
        self,
        config: Config,
        connection: psycopg.Connection[Any],
        admin: TopicAdmin,
        told: MutableMapping[str, str],
        before: Mapping[str, int] | None,
        *,
        refuse_foreign: Callable[[Collection[str]], None],
    ) -> None:
        self.config = config
        self._connection = connection
        self._admin = admin
        self._told = told
        self._refuse_foreign = refuse_foreign
        self._formats = TableFormats(config, None if config.registry is None else SchemaRegistry(config.registry))
        self._missed: Demand | None = None
        self._described: dict[str, str] = {}
        self._asked: set[tuple[str, tuple[SchemaColumn, ...]]] = set()
        self._changed_hands: dict[str, str] = {}
        self._root: Relation | None = None
        self._brought: set[str] = set()
        self.successions = Successions()
        self.members: Mapping[str, Membership] = {}
        self.tables, left = choose(connection, config, before)
        self.left_out = {each.table for each in left}
        tell(left, told)
        tell_of_renamed(renamed(connection, before or {}, self.tables))
        self.histories = history_topics(config, self.tables)
        self.outboxes = Outboxes(config, connection, admin, self.histories)
        self.envelopes: EnvelopeMaker | None = None
        if self._formats.envelope is not None:
            self.envelopes = EnvelopeMaker(config.name, connection.info.dbname, __version__, time.time_ns)
        self._enveloped_whole: set[str] = set()
        self._infos = {(each.namespace, each.name): each for each in self.tables}
        self.rows = RowRules(connection, config, lambda *name: self.successions.last(state_topic(config, *name)))

    @property
    def topics(self) -> Mapping[str, Sequence[str]]:
        """Topics that must not lose a record, and the tables that are incomplete without them."""
        names = {state_topic(self.config, each.namespace, each.name): [each.qualified_name] for each in self.tables}
        return {**names, **bookkeeping_topics(self.config, self.tables)}

    def ensure_topics(self) -> None:
        """Create missing topics; refuse topics that would lose or scatter state, and warn of other differences.

        Raises:
            TopicRefused: the cleanup policy or the number of partitions is wrong, or the records are not a bridge's.
        """
        self._ensure_topics(self.tables)
        self.outboxes.ensure_fixed_topics()

    def _ensure_topics(self, tables: Sequence[TableInfo]) -> None:
        specifications = topic_specifications(self.config, tables)
        self._refuse_foreign([each.name for each in specifications])
        created = self._admin.create_missing(specifications)
        for name in created:
            log.info("created topic", topic=name)
        self._tell_of_new_histories(tables, created)
        for drift in self._admin.drift(specifications):
            text = f"topic {drift.topic!r} has {drift.setting}={drift.found}, wanted {drift.wanted}"
            if drift.is_fatal:
                raise TopicRefused(text, remedy=drift.remedy)
            log.warning(text, remedy=drift.remedy)

    def _tell_of_new_histories(self, tables: Sequence[TableInfo], created: Collection[str]) -> None:
        for table in tables:
            topic = state_topic(self.config, table.namespace, table.name)
            if topic not in created and self.histories.get(topic) in created:
                log.warning(
                    "history begins now: a row appears in it when it next changes",
                    table=table.qualified_name,
                    remedy=f"to have all rows in it as they are now: cdc backfill {shlex.quote(table.qualified_name)}",
                )

    def encoder(self, relation: Relation) -> TableEncoder | None:
        """Returns the encoder of a relation in the stream, once its transaction is visible; None to skip its rows.

        Raises:
            SourceRefused: the table was captured before, but the role may not read it any more.
        """
        info = self._info(relation)
        if info is None:
            return None
        topic = state_topic(self.config, relation.namespace, relation.name)
        key = self.successions.key(relation, topic, info.key)
        if not key:
            name = relation.qualified_name
            why = "the stream has rows from before the table had its key, and nothing identifies them"
            log.warning(
                "rows are skipped, and the table is published again",
                table=name,
                reason=why,
                remedy="wait: the table is published again by itself; `cdc backfill --list` says how far",
            )
            self._missed = Demand(name, True, why)
            return None
        return self._encoder(relation, key, topic, info)

    def _encoder(self, relation: Relation, key: tuple[str, ...], topic: str, info: TableInfo) -> TableEncoder | None:
        """Returns the encoder of a relation; None if its values cannot be written, and the table is left out."""
        name = relation.qualified_name
        if (rule := self.rows.of(name)) is not None:
            relation = replace(relation, rows=rule)
        if left := misfit(self.config, name, [each.name for each in relation.columns], key):
            self._leave_out([left])
            self._missed = Demand(name, True, left.reason)
            return None
        hiding = hiding_of(self.config, relation)
        shown = relation if hiding is None else hiding.relation
        try:
            key_schema = self._key_schema(table_schema(shown, key, topic))
        except (RegistryRefused, RegistryUnavailable) as error:
            self._skip(info, error)
            return None
        types = {column.name: sql_type(column) for column in shown.columns}
        forms = self._formats.values_of(name, types)
        plain = table_schema(shown, key, topic, forms, key_schema)
        schema = replace(
            plain,
            written=self.successions.written(topic, plain.fingerprint),
            was_enveloped=self.successions.was_enveloped(topic),
        )
        if self._formats.name_of(name) != "json":
            schema = self._numbered(schema, info)
        try:
            form = self._form(schema, shown)
        except (RegistryRefused, RegistryUnavailable) as error:
            self._skip(info, error)
            return None
        encoder = TableEncoder(relation, key, topic, form, key_schema, hiding)
        if name in self.config.source.quarantine:
            encoder.quarantines(self.config.topics.max_message_bytes)
        if self.envelopes is not None and encoder.schema.envelope is not None:
            self.envelopes.learn(encoder.schema, shown.columns, encoder.schema.envelope)
            # If the stream sends no more than the key, the record's key has that, too
            identity = {column.name for column in relation.columns if column.in_identity}
            (self._enveloped_whole.discard if identity == set(key) else self._enveloped_whole.add)(topic)
        return encoder

    @property
    def with_old_rows(self) -> Collection[str]:
        """Topics whose records need the old row; grows with the tables."""
        return self.histories if self.envelopes is None else self._enveloped_whole

    def _skip(self, info: TableInfo, error: CdcError) -> None:
        """Leave a table out whose schema the registry does not take, with a backfill for what it misses."""
        self._leave_out([self._unfit(info, error)])
        self._missed = Demand(info.qualified_name, True, error.message)

    def _key_schema(self, schema: TableSchema) -> WrittenSchema | None:
        successions, topic = self.successions, schema.topic
        return self._formats.key_schema(schema, successions.last(topic), successions.key_ids(topic))

    def _form(self, schema: TableSchema, relation: Relation) -> ValueForm | None:
        successions, topic = self.successions, schema.topic
        return self._formats.form(schema, relation.columns, successions.last(topic), successions.ids(topic))

    def _unfit(self, info: TableInfo, error: CdcError) -> LeftOut:
        name = info.qualified_name
        reason = f"the schema of table {name} cannot be registered: {error.message}"
        return LeftOut(name, reason, error.remedy, name in self.config.source.tables, "format")

    def unfit(self, connection: psycopg.Connection[Any], tables: Sequence[TableInfo]) -> list[LeftOut]:
        """Returns the tables whose schemas, as the catalog has them today, the registry does not take.

        Args:
            connection: reads the catalog, in the thread that asks.
            tables: tables that are not captured yet, or not any more.
        """
        unfit = []
        for info in tables:
            if self.config.topics.key_format == "json" and self._formats.name_of(info.qualified_name) == "json":
                continue
            relation = published(self.config, shape_of(connection, info, self.config.source.publication))
            topic = state_topic(self.config, info.namespace, info.name)
            try:
                schema = table_schema(relation, info.key, topic)
                self._key_schema(schema)
                self._form(schema, relation)
            except (RegistryRefused, RegistryUnavailable) as error:
                unfit.append(self._unfit(info, error))
        return unfit

    def missed(self) -> Demand | None:
        """Returns, once, the demand to publish a table again whose rows were skipped; None when there is none."""
        missed, self._missed = self._missed, None
        return missed

    def meet(self, relation: Relation) -> Sequence[Demand]:
        """Take note of a relation that was described. Returns demands for what must be published again.

        The server describes a partition right after its root, when it first has a change. It labels rows of a partition
        with the root's identity, but sends old rows as the partition's own identity logged them. If the two differ,
        keys that were deleted or moved may stay in the topic for ever.
        """
        root, self._root = self._root, None
        info = self._infos.get((relation.namespace, relation.name))
        if info is not None and info.kind == "p":
            self._root = relation
        elif root is not None and _identity(root) != _identity(relation):
            name = root.qualified_name
            why = f"partition {relation.qualified_name} had another replica identity than its root"
            log.error(
                why + ": its deletions may be missing", table=name, remedy=f"cdc backfill {shlex.quote(name)} --sweep"
            )
            if self.config.heals_gaps:
                return [Demand(name, True, why), *self._moved(relation)]
        return self._moved(relation)

    def _moved(self, relation: Relation) -> list[Demand]:
        """Returns the backfill of the name that a table had before, if that name is in use: its topic lacks these rows.

        Names may be given back before anybody looks at the catalog, and ``__schemas`` does not keep which tables a
        topic was written for before. So the backfill is put on record now, together with the rows that go elsewhere.
        """
        former = self.successions.last_of(relation.relation_id)
        if former is None or not former.topic or self.config.snapshot.mode == "never":
            return []
        name = (former.namespace, former.name)
        if (
            name == (relation.namespace, relation.name)
            or name not in self._infos
            or table_info(self._connection, *name, self.config.source.keys) is None
        ):
            return []
        return [Demand(former.qualified_name, True, f"its table was called {relation.qualified_name} for a while")]

    def chunk_encoder(self, relation: Relation) -> TableEncoder | None:
        """Returns the encoder for rows that were read from the table, once the stream has come to where they were read.

        Returns None when the table is not captured any more.
        """
        topic = state_topic(self.config, relation.namespace, relation.name)
        info = self._infos.get((relation.namespace, relation.name))
        if info is None:
            return None
        source = self.config.source
        today = table_info(self._connection, info.namespace, info.name, source.keys, source.rows) or info
        if left := [each for each in unusable(self._connection, self.config, [today]) if each.cause == "table"]:
            self._leave_out(left)
            return None
        last = self.successions.last(topic)
        key = last.key if last is not None and set(last.key) == set(today.key) else today.key
        return self._encoder(relation, key, topic, info)

    def new_beginning(self, table: TableEncoder) -> NewBeginning | None:
        """Returns why the table's topic must be emptied before its next row; None when it goes on as it is.

        Raises:
            GapError: it must be emptied, but the configuration wants a person to decide.
        """
        return self._decided(table.schema, self.successions.new_beginning(table.schema))

    def _decided(self, schema: TableSchema, beginning: NewBeginning | None) -> NewBeginning | None:
        if beginning is not None and beginning.cause in FOR_A_PERSON and not self.config.heals_gaps:
            raise GapError(
                f"table {schema.qualified_name} cannot go on in topic {schema.topic!r}: {beginning.why}",
                remedy=FOR_A_PERSON[beginning.cause],
            )
        return beginning

    def replaced(self) -> list[Demand]:
        """Returns backfills of tables whose key columns, by today's catalog, were replaced since the topic was written.

        Raises:
            GapError: there are some, but the configuration wants a person to decide.
        """
        demands = (self._replaced(info, columns) for info, columns in self._columns_of(self.tables))
        return [*self._returned(), *(each for each in demands if each is not None)]

    def changed_hands(self, tables: Iterable[TableInfo]) -> dict[str, str]:
        """Returns tables whose topics hold what was written while names were others, and why; each once.

        Names may be exchanged and have been given back between two looks at the catalog. The changes in between went
        to other topics, and only the next change of these tables, which may never come, would say so.
        """
        return {name: beginning.why for name, beginning in self._newly_changed_hands(tables)}

    def _returned(self) -> list[Demand]:
        """Returns backfills of tables that are back under their names; under another's name, a table is new anyway."""
        found = self._newly_changed_hands(self.tables)
        return [Demand(name, True, beginning.why) for name, beginning in found if beginning.cause == "return"]

    def _newly_changed_hands(self, tables: Iterable[TableInfo]) -> list[tuple[str, NewBeginning]]:
        found = []
        for info in tables if self.config.snapshot.mode != "never" else ():
            name = info.qualified_name
            beginning = self.successions.changed_hands(state_topic(self.config, info.namespace, info.name), info.oid)
            if beginning is None:
                self._changed_hands.pop(name, None)
            elif self._changed_hands.get(name) != beginning.why:  # until its backfill comes, it is the same each time
                self._changed_hands[name] = beginning.why
                found.append((name, beginning))
        return found

    def replacement(self, info: TableInfo, columns: Sequence[SchemaColumn]) -> str:
        """Returns why today's catalog demands that a table's topic begin anew, which the stream may never say.

        Returns an empty text when it need not, or when this session has already asked for the backfill that empties it.
        """
        beginning = self._replacement(info, columns)
        return "" if beginning is None or self._mark(info, columns) in self._asked else beginning.why

    def _replaced(self, info: TableInfo, columns: Sequence[SchemaColumn]) -> Demand | None:
        """Returns, once, the backfill that empties the topic when the stream has come to today's catalog."""
        beginning, mark = self._replacement(info, columns), self._mark(info, columns)
        if beginning is None or mark in self._asked:
            return None
        self._decided(self._today(info, columns), beginning)
        self._asked.add(mark)
        return Demand(info.qualified_name, True, beginning.why)

    def _replacement(self, info: TableInfo, columns: Sequence[SchemaColumn]) -> NewBeginning | None:
        last = self.successions.last(state_topic(self.config, info.namespace, info.name))
        if last is None or last.relation_id != info.oid:
            return None
        beginning = self.successions.new_beginning(self._today(info, columns))
        if beginning is None or beginning.cause == "return":
            return None
        is_asked_for = self.config.snapshot.mode != "never" or beginning.cause in FOR_A_PERSON or last.rows is not None
        return beginning if is_asked_for else None

    def _today(self, info: TableInfo, columns: Sequence[SchemaColumn]) -> TableSchema:
        topic = state_topic(self.config, info.namespace, info.name)
        forms = self._formats.values_of(info.qualified_name, {each.name: each.sql_type for each in columns})
        today = TableSchema("", info.namespace, info.name, topic, info.key, formed(columns, forms), info.oid)
        today = replace(
            today,
            rules=rules_told(self.config, today.qualified_name),
            rows=self.rows.of(today.qualified_name),
            format=self._formats.name_of(today.qualified_name),
            envelope=self._formats.envelope,
            is_connects=forms.is_connects,
        )
        try:
            return replace(today, key_schema=self._key_schema(today))
        except (RegistryRefused, RegistryUnavailable):  # which is said when the next row needs the schema
            last = self.successions.last(topic)
            return replace(today, key_schema=None if last is None else last.key_schema)

    def _mark(self, info: TableInfo, columns: Sequence[SchemaColumn]) -> tuple[str, tuple[SchemaColumn, ...]]:
        return info.qualified_name, tuple(each for each in columns if each.name in info.key)

    def _columns_of(self, tables: Sequence[TableInfo]) -> list[tuple[TableInfo, tuple[SchemaColumn, ...]]]:
        found = columns_of(self._connection, tables)
        columns = (published_columns(self.config, info.qualified_name, found.get(info.oid, ())) for info in tables)
        return [
            (info, tuple(schema_column(each, is_key=each.in_identity) for each in shown))
            for info, shown in zip(tables, columns, strict=True)
            if info.oid in found
        ]

    def demand(self, table: TableEncoder, beginning: NewBeginning | None) -> Demand | None:
        """Returns the backfill that a table needs: its topic begins anew, or it was renamed or brought by the stream.

        Raises:
            GapError: its key columns were replaced, and the configuration wants a person to decide.
        """
        name = table.relation.qualified_name
        if beginning is not None:
            return Demand(name, False, beginning.why)
        info = self._infos.get((table.relation.namespace, table.relation.name))
        if info is not None and info.oid == table.relation.relation_id:
            for _, columns in self._columns_of([info]):
                if demand := self._replaced(info, columns) or self._uncertain(table, info):
                    return demand
        is_new = self.successions.last(table.topic) is None
        if is_new and (before := self.successions.last_of(table.relation.relation_id)) is not None:
            old = before.qualified_name
            if before.topic:  # else its former name was out of source.tables, and that was said when it got it
                log.warning(
                    "table was renamed: it has a topic of its own under the new name, the old one stays as it is",
                    table=name,
                    old_name=old,
                    topic=table.topic,
                    old_topic=before.topic,
                    remedy=f"when nobody reads it any more: kafka-topics.sh --delete --topic {before.topic}",
                )
            return Demand(name, False, f"the table was called {old} before")
        if name not in self._brought or self.config.snapshot.mode == "never":
            return None
        self._brought.discard(name)
        return Demand(name, not is_new, "it was rewritten before it joined with the stream: it may have been unlogged")

    def describe(self, table: TableEncoder, produce: Produce) -> None:
        """Write the table's definition to ``__schemas``, unless its topic was last written with the same one."""
        relation, before = table.relation, self.successions.last(table.topic)
        info = self._infos.get((relation.namespace, relation.name))
        schema = self._numbered(table.schema, info)
        newest = self.successions.last_of(schema.relation_id)
        if self._described.get(table.topic) == table.fingerprint and before == newest == schema:
            return
        goes_on = before is not None and self.successions.new_beginning(schema) is None
        if before is not None and goes_on and (change := shape_change(before, schema)):
            log.warning(
                "table was altered: rows that do not change keep their old shape in the topic",
                table=table.relation.qualified_name,
                change=change,
                remedy=f"cdc backfill {shlex.quote(table.relation.qualified_name)}",
            )
        self._described[table.topic] = table.fingerprint
        self.successions.wrote(schema)
        produce(schemas_topic(self.config.name), schema_key(table.fingerprint), schema_value(schema), b"")

    def _numbered(self, schema: TableSchema, info: TableInfo | None) -> TableSchema:
        """Returns the definition that is put on record: with the numbers of its columns."""
        today = [] if info is None else list(map(_with_number, info.columns, info.numbers))
        numbers = {each.name: each.number for each in today}
        return numbered(self.successions.kept(schema, today), numbers, self.successions.last(schema.topic))

    def _uncertain(self, table: TableEncoder, info: TableInfo) -> Demand | None:
        """Returns the backfill for a topic that goes on, but may hold rows of another column of its key's name."""
        last, name = self.successions.last(table.topic), table.relation.qualified_name
        mark = (name, self._numbered(table.schema, info).columns)
        if last is None or mark in self._asked:
            return None
        was = {each.name for each in last.columns if each.number}
        if unknown := [each.name for each in mark[1] if each.name in table.key_columns and not each.number]:
            self._asked.add(mark)
            if was & set(unknown):
                return Demand(name, True, f"its key column {unknown[0]} may have been another one for a while")
        return None

    def _info(self, relation: Relation) -> TableInfo | None:
        """Returns the table as the catalog has it today, or last had it; None when it is out of scope or unusable."""
        source, name = self.config.source, (relation.namespace, relation.name)
        if not in_scope(*name, source.tables, source.exclude):
            self._tell_of_leaving(relation)
            return None
        if relation.qualified_name in self.left_out:
            return None
        info = table_info(self._connection, *name, source.keys, source.rows)
        if info is None:
            if name not in self._infos:
                self._tell_of_leaving(relation)  # it went on to yet another name, or back to its own
            return self._infos.get(name)  # it was dropped or renamed since
        if left := unusable(self._connection, self.config, [info]):
            if name in self._infos:
                refuse([each for each in left if each.cause == "rights"])  # once granted again, nothing is lost
            self._leave_out(left)
            self._missed = Demand(info.qualified_name, True, left[0].reason)
            return None
        is_new = name not in self._infos
        if is_new and info.condition is not None:
            why = f"table {info.qualified_name} has a condition in source.rows, which only a new session takes over"
            self._leave_out([LeftOut(info.qualified_name, why, "wait: it joins within seconds", False, "table")])
            return None
        self._infos[name] = info
        self.tables = (*(each for each in self.tables if (each.namespace, each.name) != name), info)
        if is_new:
            if not info.is_as_created:
                self._brought.add(info.qualified_name)
            self.histories.update(history_topics(self.config, [info]))
            self._ensure_topics([info])
        return info

    def keep(self, carried: Collection[str], error: SourceLocked) -> bool:
        """Go on with the tables that the publication carries, as it cannot be altered; False when there are none.

        Args:
            carried: the qualified names of tables that it carries.
            error: says who has locked a table.
        """
        rest = [each.qualified_name for each in self.tables if each.qualified_name not in carried]
        if len(rest) == len(self.tables):
            return False
        log.warning(
            "the publication cannot be altered now: tables that it does not carry are left out",
            error=error.message,
            remedy=error.remedy,
        )
        for name in rest:
            is_named = name in self.config.source.tables
            self._leave_out([LeftOut(name, error.message, error.remedy, is_named, "publication")])
        return True

    def withholds(self, relation: Relation) -> bool:
        """Whether nothing of a relation may be published before it is read, because of its rows' condition."""
        name = (relation.namespace, relation.name)
        return name in self._infos and self.rows.withholds(*name, relation.qualified_name)

    def read_conditions(self) -> None:
        """Read by which conditions rows are published, once the publication has them."""
        for left in self.rows.read(self.tables):
            self._leave_out([left])

    def _leave_out(self, left: Sequence[LeftOut]) -> None:
        """Skip the table's rows from here on, until a session begins that can capture it."""
        tell(left, self._told)
        name = left[0].table
        self.left_out.add(name)
        self._infos = {key: each for key, each in self._infos.items() if each.qualified_name != name}
        self.tables = tuple(each for each in self.tables if each.qualified_name != name)

    def _tell_of_leaving(self, relation: Relation) -> None:
        """Warn that a captured table left for a name that is not captured: changes under that name are missed."""
        before = self.successions.last_of(relation.relation_id)
        if before is None or not before.topic:
            return
        own, old_name = (before.namespace, before.name), before.qualified_name
        today = table_info(self._connection, *own, self.config.source.keys)
        is_back = today is not None and today.oid == relation.relation_id
        if not is_back:
            self._infos.pop(own, None)
            self.tables = tuple(each for each in self.tables if (each.namespace, each.name) != own)
        if is_back:
            log.warning(
                "table had another name for a while",
                table=old_name,
                name=relation.qualified_name,
                remedy="compare it if rows changed under that name: cdc reconcile",
            )
        else:
            log.warning(
                "table was renamed out of source.tables: its changes are not published any more, "
                "its topic stays as it is",
                table=relation.qualified_name,
                old_name=old_name,
                topic=before.topic,
                remedy=f"add {relation.qualified_name} to source.tables, or, when nobody reads it any more: "
                f"kafka-topics.sh --delete --topic {before.topic}",
            )
        self._missed = Demand(old_name, True, f"it was called {relation.qualified_name} for a while")
        self.successions.left(relation)


def _with_number(name: str, number: int) -> SchemaColumn:
    return SchemaColumn(name, "", number)


def _identity(relation: Relation) -> tuple[ReplicaIdentity, frozenset[str]]:
    return relation.replica_identity, frozenset(each.name for each in relation.columns if each.in_identity)
