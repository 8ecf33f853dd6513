"""Asks a schema registry that speaks Confluent's API, through the registry client of confluent-kafka.

https://docs.confluent.io/platform/current/schema-registry/develop/api.html
"""

from __future__ import annotations

import importlib
import importlib.util
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

from cdc.base import extras
from cdc.base.config import RegistryConfig
from cdc.base.errors import CdcError, ConfigError, RegistryRefused, RegistryUnavailable
from cdc.base.long_wait import told
from cdc.contract.formats.registered import SchemaKind

CONNECT_TIMEOUT_S: Final = 3.0
"""A registry in the same network takes milliseconds; after a lost packet, TCP tries again after one second."""
ANSWER_TIMEOUT_S: Final = 10.0
"""A registry that registers a schema waits for Kafka or a database: milliseconds as a rule, seconds when a leader
changes."""
_RETRIES_OF_A_SINGLE: Final = 1
"""The client's own defaults are to wait for ever, and to ask four times. Once more is enough for a connection that the
registry closed while it was idle, and two attempts end within half a minute. Who calls tries again later. If there are
several addresses, the next one is the second attempt."""
RETRY_WAIT_MS: Final = 1000
_LONGEST_WORDS: Final = 2000
"""Confluent's reasons for a refusal quote the whole old schema at their end."""
_NOT_REASONS: Final = ("{oldSchema", "{validateFields", "{compatibility")
"""Messages of Confluent's registry about what it compared with, not about what is wrong."""

_WAIT: Final = "wait: cdc tries again by itself; if that does not help: is the registry up, and registry.url right?"
_WRONG_PLACE: Final = (
    "correct registry.url: it is the address at which Confluent's API begins, such as https://host:8081, or "
    "https://host/apis/ccompat/v7 for Apicurio"
)


class _Unknown(RegistryRefused):
    """The registry does not know the subject or schema that we asked about."""


def require_client() -> None:
    """Check that the extra is installed that who asks a registry needs.

    Raises:
        ConfigError: it is not.
    """
    extras.require("registry", "the section registry of the configuration")


class SchemaRegistry:
    """A schema registry. Several threads may share one object. It remembers nothing: each call asks the registry.

    Each call takes up to half a minute, and raises ``RegistryUnavailable`` if the registry does not answer,
    ``RegistryRefused`` if it refuses until the operator changes something.

    Args:
        config: the section ``registry`` of the configuration.

    Raises:
        ConfigError: the extra is not installed, or a certificate cannot be used.
    """

    def __init__(self, config: RegistryConfig) -> None:
        require_client()
        # Only who has a registry pays a tenth of a second for this import.
        from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

        self.name = ",".join(config.urls)
        self._schema = Schema
        self._context = None if config.context is None else f":.{config.context}:"
        self._outages = tuple(_http_errors())
        for key in ("ca_file", "certificate_file", "key_file"):
            _check_readable(key, getattr(config, key))
        try:
            self._client: Any = SchemaRegistryClient(_client_options(config))
        except ssl.SSLError as error:
            raise ConfigError(
                f"a certificate or key of the registry cannot be used: {error}",
                remedy="correct registry.ca_file, registry.certificate_file and registry.key_file: PEM files, and the "
                "key without a password",
            ) from None
        if config.token is not None:
            # The client's own option for a token demands the id of a cluster in Confluent Cloud as well.
            token = config.token.get_secret_value()
            self._client._rest_client.session.headers["Authorization"] = f"Bearer {token}"

    def register(self, subject: str, kind: SchemaKind, text: str) -> int:
        """Register a schema as the newest of its subject, exactly as it is written; returns its id.

        If the subject has this schema already, nothing changes, and the id is that of the first time.
        """
        with self._asking(f"to register a schema of {subject}"):
            return _id(self._client.register_schema(subject, self._schema(text, kind)))

    def text_of(self, schema_id: int) -> str | None:
        """Returns the schema with this id; None if the registry does not know it, in the context if there is one.

        Apicurio writes it anew. It means the same, but white space, the order of keys, and whether the namespace is
        part of a name or beside it may differ, and ``{"type": "long"}`` becomes ``"long"``.
        """
        try:
            with self._asking(f"for schema {schema_id}"):
                text = self._client.get_schema(schema_id, self._context).schema_str
                if not isinstance(text, str):
                    raise TypeError("no schema in the answer")
                return text
        except _Unknown:
            return None

    def compatibility(self, subject: str) -> str:
        """Returns the mode by which the registry accepts new schemas of this subject: its own or its context's.

        It is NONE, BACKWARD, FORWARD, FULL, or one of the last three with _TRANSITIVE at its end.
        """
        for name in filter(None, (subject, self._context)):
            with suppress(_Unknown):
                return self._mode(name)
        return self._mode(None)

    def kind(self, subject: str) -> str | None:
        """Returns the language of a subject's newest schema; None if the subject does not exist.

        Apicurio takes a schema of another language, and keeps it as one of the subject's first.
        """
        try:
            with self._asking(f"for the newest schema of {subject}"):
                answer = self._client._rest_client.get(f"subjects/{quote(subject, safe='')}/versions/latest")
                return str(answer.get("schemaType") or "AVRO")
        except _Unknown:
            return None

    def problems(self, subject: str, kind: SchemaKind, text: str) -> tuple[str, ...]:
        """Returns why a schema does not fit the newest one of its subject, in the registry's words; empty if it fits.

        A subject that does not exist takes anything. A transitive mode compares with older schemas as well, but only
        when a schema is registered.
        """
        # The client's own method drops the reasons.
        path = f"compatibility/subjects/{quote(subject, safe='')}/versions/latest?normalize=false&verbose=true"
        try:
            with self._asking(f"to compare a schema of {subject}"):
                answer = self._client._rest_client.post(path, body=self._schema(text, kind).to_dict())
                fits, said = bool(answer["is_compatible"]), [str(each) for each in answer.get("messages") or ()]
        except _Unknown:
            return ()
        # Apicurio says false of any change in mode NONE, but takes it.
        if fits or (mode := self.compatibility(subject)) == "NONE":
            return ()
        reasons = tuple(each for each in said if not each.startswith(_NOT_REASONS))
        return reasons or (f"not compatible by mode {mode}; the registry gives no reasons",)

    def close(self) -> None:
        """Close the connections."""
        self._client.__exit__(None, None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _mode(self, subject: str | None) -> str:
        with self._asking(f"for the compatibility of {subject or 'all subjects'}"):
            return str(self._client.get_compatibility(subject))

    @contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        """Asks the client within the block; translates its errors, or raises ``_Unknown``.

        Args:
            what: what we ask, for messages: ``to …``, ``for …``.
        """
        from confluent_kafka.schema_registry import SchemaRegistryError

        # The client would go on to give the id of a schema that was deleted in the registry.
        self._client.clear_caches()
        # "from None": the client's errors hold the request, which has the password in its header.
        try:
            with told(f"the schema registry at {self.name}", "to answer", "up to half a minute"):
                yield
        except SchemaRegistryError as error:
            if error.http_status_code == 404 and _is_about_a_schema(error):
                raise _Unknown(
                    f"the schema registry at {self.name} was asked {what}: {_words(error)}",
                    remedy="look into the registry: is the subject there, and is registry.url the right registry?",
                ) from None
            raise self._translated(error, what) from None
        except self._outages as error:
            raise self._of_the_connection(error) from None
        except (ValueError, TypeError, KeyError, AttributeError):
            raise self._not_a_registry(what, "it is not JSON of the form that a registry gives") from None

    def _translated(self, error: Any, what: str) -> CdcError:
        status, said = int(error.http_status_code), _words(error)
        here = f"the schema registry at {self.name}"
        if status in (408, 429) or status >= 500:
            return RegistryUnavailable(f"{here} cannot answer now: {said}", remedy=_WAIT)
        if status == 401:
            return RegistryRefused(
                f"{here} does not let us in: {said}",
                remedy="correct registry.user and registry.password, or registry.token, as the registry wants it",
            )
        if status == 403:
            return RegistryRefused(
                f"{here} does not allow us {what}: {said}",
                remedy="allow the user of registry.user or registry.token to read and write the bridge's subjects, "
                "and to read the compatibility",
            )
        if status == 409:
            return RegistryRefused(
                f"{here} was asked {what}, which does not fit its earlier ones: {said}",
                remedy="undo the change of the table; or, once every reader can take the new schema, set the subject's "
                "compatibility to NONE in the registry. The bridge asks again by itself",
            )
        if status == 422:
            return RegistryRefused(
                f"{here} was asked {what}, and does not take it: {said}",
                remedy="do what it says; if it says that the schema is invalid, report that with the versions of cdc "
                "and of the registry",
            )
        return self._not_a_registry(what, said)

    def _of_the_connection(self, error: Exception) -> CdcError:
        here = f"the schema registry at {self.name}"
        if (refused := _of_tls(error)) is not None:
            return RegistryRefused(
                f"no TLS connection to {here}: {refused}",
                remedy="correct registry.ca_file (who signed its certificate), the host in registry.url (what the "
                "certificate says), or registry.certificate_file (whom it lets in)",
            )
        reason = str(error) or type(error).__name__
        return RegistryUnavailable(f"{here} does not answer: {reason}", remedy=_WAIT)

    def _not_a_registry(self, what: str, said: str) -> RegistryRefused:
        return RegistryRefused(
            f"what answers at {self.name} is not a schema registry; it was asked {what}: {said}", remedy=_WRONG_PLACE
        )


def _client_options(config: RegistryConfig) -> dict[str, Any]:
    options: dict[str, Any] = {
        "url": ",".join(config.urls),
        # In the order of the HTTP client: to connect, to read, to write, and to get a free connection.
        "timeout": (CONNECT_TIMEOUT_S, ANSWER_TIMEOUT_S, ANSWER_TIMEOUT_S, CONNECT_TIMEOUT_S),
        "max.retries": _RETRIES_OF_A_SINGLE if len(config.urls) == 1 else 0,
        "retries.wait.ms": RETRY_WAIT_MS,
    }
    if config.user is not None and config.password is not None:
        options["basic.auth.user.info"] = f"{config.user}:{config.password.get_secret_value()}"
    files = {
        "ssl.ca.location": config.ca_file,
        "ssl.certificate.location": config.certificate_file,
        "ssl.key.location": config.key_file,
    }
    options.update({name: path for name, path in files.items() if path is not None})
    if config.certificate_file is not None:
        # Without one, OpenSSL would ask at the terminal for the password of a key that has one.
        options["ssl.key.password"] = ""
    return options


def _check_readable(key: str, path: str | None) -> None:
    """Opens a file that the TLS library would only call missing, without its name."""
    if path is None:
        return
    try:
        with Path(path).open("rb"):
            pass
    except OSError as error:
        raise ConfigError(
            f"registry.{key}: cannot read {path}: {error.strerror}", remedy=f"correct registry.{key}"
        ) from None


def _http_errors() -> Iterator[type[Exception]]:
    """Yields the error for what got no answer, of each HTTP library that the client may use: older ones use httpx."""
    for library in ("httpx2", "httpx"):
        if importlib.util.find_spec(library) is not None:
            yield importlib.import_module(library).RequestError


def _id(found: Any) -> int:
    if not isinstance(found, int):
        raise TypeError("no id in the answer")
    return found


def _is_about_a_schema(error: Any) -> bool:
    """Whether a registry says that it does not know a subject or schema (404xx), and not that the path is wrong."""
    return isinstance(error.error_code, int) and error.error_code // 100 == 404


def _words(error: Any) -> str:
    """Returns what a registry says, or the HTTP status if its answer is anything else, such as a page of a proxy."""
    status = f"HTTP status {error.http_status_code}"
    if error.error_code == -1 or not error.error_message:
        return status
    said = str(error.error_message)
    return f"{said[:_LONGEST_WORDS]}{' …' if len(said) > _LONGEST_WORDS else ''} ({status})"


def _of_tls(error: BaseException) -> ssl.SSLError | None:
    """Returns the refusal of TLS that caused an error; None if there is none, or if only the connection ended."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            ended = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
            return None if isinstance(cause, ended) else cause
        cause = cause.__cause__ or cause.__context__
    return None
