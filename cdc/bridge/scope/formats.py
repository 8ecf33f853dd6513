"""How the values of each table are written, and the registration of a schema before the first value that names it.

Theory of operation. A value begins with the id that the registry gave to its schema, so a schema is registered before a
row is encoded. The id goes on record in ``__schemas`` together with the schema, in the Kafka transaction of the first
row that needs it. Readers of ours take it from there, and so does the next session: only a schema that is new to the
topic makes anybody ask the registry.

A registry that was restored may have another schema under an id on record. So each id is compared once a session, if
the registry answers. A schema that it does not know is registered anew; rows with the former id remain.

Keys with a schema are another matter: with another id, a row would get a second key, which compaction never removes.
So the id of a topic's key schema is pinned: the definition on record says it, and the bridge writes no other. If the
registry does not have the schema under this id any more, the schema gets another one, and the topic has to begin anew
(``order.succession``), which a person decides.

A registry that is away, or that refuses a schema, must not stop the other tables. So such a table is left out, with a
backfill on record for the rows that it misses, and comes back once the registry takes its schema.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

import structlog

from cdc.base.config import Config
from cdc.base.config.debezium import DebeziumConfig
from cdc.base.config.values import Forms
from cdc.base.errors import RegistryRefused, RegistryUnavailable
from cdc.bridge.encode import ValueForm
from cdc.contract.change import Column
from cdc.contract.formats.debezium.rows import DebeziumWriter
from cdc.contract.formats.formed.cells import OTHER_FORMS
from cdc.contract.formats.formed.rows import FormedWriter
from cdc.contract.formats.json_format import JSON
from cdc.contract.formats.registered import RegisteredFormat, SchemaKind, registered
from cdc.contract.kinds import Kind, kind_of
from cdc.contract.naming import subject
from cdc.contract.record import ColumnForm, DebeziumModes, FormatName, TableSchema, ValueForms, WrittenSchema

_PAUSE_S: Final = 5.0
"""How long nobody asks a registry that did not answer. Each question may take many seconds, and the whole bridge waits
for it: a hundred tables that join at once must not ask one after the other."""

Answer = TypeVar("Answer")

log = structlog.get_logger("cdc.bridge")


class Registry(Protocol):
    """A registry of schemas."""

    def register(self, subject: str, kind: SchemaKind, text: str) -> int:
        """Returns the id of a schema; registers it if the subject does not have it yet."""

    def text_of(self, schema_id: int) -> str | None:
        """Returns the schema with this id; None if there is none."""

    def compatibility(self, subject: str) -> str:
        """Returns the mode by which the registry takes new schemas of a subject."""

    def kind(self, subject: str) -> str | None:
        """Returns the language of a subject's newest schema; None if there is none."""


class TableFormats:
    """Chooses how values are written, and registers their schemas.

    Args:
        config: the whole configuration.
        registry: None if every table is written as JSON.
        clock: seconds of any beginning.
    """

    def __init__(self, config: Config, registry: Registry | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._registry = registry
        self._clock = clock
        self._compared: set[WrittenSchema] = set()
        self._away: RegistryUnavailable | None = None
        self._asks_again_at = 0.0

    def name_of(self, table: str) -> FormatName:
        """Returns the format of a table, by its qualified name."""
        return self._config.topics.format_of(table)

    @property
    def envelope(self) -> DebeziumModes | None:
        """What surrounds the rows of every table; None if nothing does."""
        return None if self._config.topics.envelope == "plain" else _modes(self._config.debezium)

    def values_of(self, table: str, types: Mapping[str, str]) -> ValueForms:
        """Returns the forms in which the values of a table are written.

        Args:
            table: its qualified name.
            types: the SQL type of each column, by its name.
        """
        chosen = self._config.values
        if not chosen.is_chosen or self.name_of(table) != "json":
            return ValueForms()
        found = {name: _form_of(kind_of(sql_type).kind, chosen.of(table, name)) for name, sql_type in types.items()}
        return ValueForms({name: form for name, form in found.items() if form}, chosen.schemas_of(table) == "connect")

    def form(
        self,
        schema: TableSchema,
        columns: Sequence[Column],
        last: TableSchema | None = None,
        ids: Mapping[int, WrittenSchema] | None = None,
    ) -> ValueForm | None:
        """Returns how values of a definition are written; None for JSON in a topic that never held anything else.

        Args:
            schema: the definition, with the schemas that its values were written with before.
            columns: the columns of the rows to come, in their order.
            last: the definition with which the topic was last written, if there is one.
            ids: all schemas with which values were written to the topic, by their ids.

        Raises:
            RegistryUnavailable: the registry has to register the schema, and does not answer.
            RegistryRefused: the registry does not take the schema.
        """
        name, envelope = self.name_of(schema.qualified_name), self.envelope
        if name == "json" and envelope is not None:
            return ValueForm(name, DebeziumWriter(columns, envelope), schema.written, envelope, schema.was_enveloped)
        if name == "json":
            if schema.is_formed:
                forms = ValueForms({each.name: each.form for each in schema.columns if each.form}, schema.is_connects)
                writer = FormedWriter(columns, schema)
                return ValueForm(name, writer, schema.written, None, schema.was_enveloped, forms)
            if not schema.written and not schema.was_enveloped:
                return None
            # The log may still hold values of a former format, and who begins at its first offset meets them
            return ValueForm(name, JSON.writer(columns), schema.written, None, schema.was_enveloped)
        form = registered(name, envelope)
        text = form.schema(schema, self._config.name, self._config.topics.beyond)
        former = former_schema(last, name, envelope)
        if former is not None:
            text = form.succeeding(former, text)
        written = next((each for each in reversed(schema.written) if (each.text, each.format) == (text, name)), None)
        if written is None or not self._is_still_there(written, schema, form):
            if former is not None:
                known = (each.text for each in (ids or {}).values() if each.format == name and each.text != former)
                older = [_misread_of_kind(form, each, text) for each in known]
                self._refuse_misreading(schema, form, older, form.misread(former, text))
                self._carry_over(schema, form, former)
            written = self._registered(schema, form, WrittenSchema(0, text, name), ids or {})
        others = (each for each in schema.written if each != written)
        registered_writer = form.writer(columns, text, written.schema_id)
        return ValueForm(name, registered_writer, (*others, written), envelope, schema.was_enveloped)

    def key_schema(
        self, schema: TableSchema, last: TableSchema | None = None, ids: Mapping[int, WrittenSchema] | None = None
    ) -> WrittenSchema | None:
        """Returns the schema of a table's keys with its id; None if they are JSON.

        Args:
            schema: the definition.
            last: the definition with which the topic was last written, if there is one: it pins the id.
            ids: all schemas with which keys were written to the topic, by their ids.

        Raises:
            RegistryUnavailable: the registry has to register the schema, and does not answer.
            RegistryRefused: the registry does not take the schema.
        """
        if self._config.topics.key_format == "json":
            return None
        # Only who has keys in Avro pays for its import
        from cdc.contract.formats.avro.keys import key_record, key_schema

        config, form, text = self._config.registry, registered("avro"), key_schema(schema, self._config.name)
        assert config is not None  # the configuration refuses a format without a registry
        pinned = None if last is None else last.key_schema
        if pinned is not None and pinned.text == text and self._agrees(pinned, form):
            return pinned
        name = subject(schema.topic, key_record(schema, self._config.name), config.subjects, config.context, "key")
        number = self._asked(lambda registry: registry.register(name, form.kind, text))
        written = WrittenSchema(number, text, "avro")
        if (ids or {}).get(number, written) != written:
            raise _given_twice(schema.topic, "keys", number)
        self._compared.add(written)
        return written

    def subject(self, schema: TableSchema, form: RegisteredFormat) -> str:
        """Returns the registry's subject of a table's schemas."""
        config = self._config.registry
        assert config is not None  # the configuration refuses a format without a registry
        return subject(schema.topic, form.record(schema, self._config.name), config.subjects, config.context)

    def _carry_over(self, schema: TableSchema, form: RegisteredFormat, former: str) -> None:
        """Register the topic's former schema in a subject that is empty, because ``registry.subjects`` was changed.

        Otherwise the registry would compare the new schema with none.
        """
        name = self.subject(schema, form)
        if self._asked(lambda registry: registry.kind(name)) is None:
            self._asked(lambda registry: registry.register(name, form.kind, former))

    def _refuse_misreading(
        self, schema: TableSchema, form: RegisteredFormat, older: Sequence[Sequence[str]], newest: Sequence[str]
    ) -> None:
        """Refuse what the registry would take although readers with a former schema read wrong values.

        Args:
            schema, form: of the table.
            older, newest: the columns that readers with the former schemas would misread.

        Raises:
            RegistryRefused: there is such a column, and the subject's compatibility is not NONE.
        """
        if not any((*older, newest)):
            return
        name = self.subject(schema, form)
        mode = self._asked(lambda registry: registry.compatibility(name))
        # As registries do: older schemas than the newest count in a transitive mode only
        compared = (*older, newest) if mode.endswith("_TRANSITIVE") else (newest,)
        columns = dict.fromkeys(column for found in compared for column in found)
        if columns and mode != "NONE":
            raise RegistryRefused(
                f"{'; '.join(columns)}: a reader with the former schema would read wrong values, and the registry does "
                "not notice",
                remedy="undo the change of the table; or, once every reader can take the new schema, set the "
                f"compatibility of subject {name} to NONE in the registry",
            )

    def _registered(
        self, schema: TableSchema, form: RegisteredFormat, new: WrittenSchema, ids: Mapping[int, WrittenSchema]
    ) -> WrittenSchema:
        if any(each.format != new.format for each in (ids or {}).values()):
            self._refuse_another_language(schema, form)
        number = self._asked(lambda registry: registry.register(self.subject(schema, form), form.kind, new.text))
        written = new._replace(schema_id=number)
        if ids.get(number, written) != written:
            raise _given_twice(schema.topic, "values", number)
        self._compared.add(written)
        return written

    def _refuse_another_language(self, schema: TableSchema, form: RegisteredFormat) -> None:
        """Refuse a subject of another language, whose readers would take the schema for one in that language.

        Raises:
            RegistryRefused: the subject is there and has another one.
        """
        name = self.subject(schema, form)
        kind = self._asked(lambda registry: registry.kind(name))
        if kind is not None and kind != form.kind:
            raise RegistryRefused(
                f"subject {name} has schemas in {kind}, and a subject has one language; the topic's schema is in "
                f"{form.kind} now",
                remedy=f"delete subject {name} in the registry, once nobody reads the former values; or give the table "
                "another topic under topics.names",
            )

    def _is_still_there(self, written: WrittenSchema, schema: TableSchema, form: RegisteredFormat) -> bool:
        """Whether the registry has the schema under the id that is on record. If it does not say, it may.

        A registry that is away, or does not let us in any more, must not stop rows whose schemas are known.
        """
        if self._agrees(written, form):
            return True
        log.warning(
            "the registry does not have a schema under its id any more: it is registered anew",
            table=schema.qualified_name,
            topic=schema.topic,
            schema_id=written.schema_id,
            remedy=f"values that begin with the former id cannot be read with this registry; publish them again: "
            f"cdc backfill {shlex.quote(schema.qualified_name)}",
        )
        return False

    def _agrees(self, written: WrittenSchema, form: RegisteredFormat) -> bool:
        """Whether the registry has a schema under its id. If it does not say, it may. Asks once a session."""
        if written in self._compared:
            return True
        try:
            found = self._asked(lambda registry: registry.text_of(written.schema_id))
        except (RegistryUnavailable, RegistryRefused):
            return True
        if found is None or not form.is_same(found, written.text):
            return False
        self._compared.add(written)
        return True

    def _asked(self, question: Callable[[Registry], Answer]) -> Answer:
        assert self._registry is not None  # the configuration refuses a format without a registry
        if self._away is not None and self._clock() < self._asks_again_at:
            raise RegistryUnavailable(self._away.message, remedy=self._away.remedy)
        try:
            return question(self._registry)
        except RegistryUnavailable as error:
            self._away, self._asks_again_at = error, self._clock() + _PAUSE_S
            raise


def former_schema(last: TableSchema | None, name: FormatName, envelope: DebeziumModes | None) -> str | None:
    """Returns the schema with which a topic was last written; None if its values were none of the same kind."""
    if last is None or last.format != name or (last.envelope is None) != (envelope is None):
        return None
    return last.written[-1].text


def _misread_of_kind(form: RegisteredFormat, former: str, now: str) -> Sequence[str]:
    """Returns the columns that readers with the former schema would misread; none if it is a schema of another kind.

    A topic may hold rows and, of another generation, rows in envelopes.
    """
    try:
        return form.misread(former, now)
    except ValueError:
        return ()


def _given_twice(topic: str, what: str, number: int) -> RegistryRefused:
    return RegistryRefused(
        f"the registry gives the schema id {number}, but topic {topic} has {what} that begin with this id and have "
        "another schema",
        remedy="restore the registry with its ids; or give the table another topic under topics.names",
    )


def _form_of(kind: Kind, chosen: Forms) -> ColumnForm:
    form = OTHER_FORMS.get(kind, "")
    return form if form in chosen else ""


def _modes(chosen: DebeziumConfig) -> DebeziumModes:
    return DebeziumModes(
        decimal=chosen.decimal_handling_mode,
        time=chosen.time_precision_mode,
        binary=chosen.binary_handling_mode,
        hstore=chosen.hstore_handling_mode,
        schemas=chosen.schemas_enable,
    )
