"""The client of the schema registry: what it asks, what it makes of each answer, and how long it waits."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cdc.base.config import RegistryConfig
from cdc.base.errors import ConfigError, RegistryRefused, RegistryUnavailable
from cdc.kafka import registry as module
from cdc.kafka.registry import SchemaRegistry
from tests.support.certificates import Authority

SCHEMA = '{"type": "record",  "name": "Row", "fields": []}'
PAGE = "<html><body>404 of some other server</body></html>"


class Answer(NamedTuple):
    """What the server says; text is sent as it is, anything else as JSON."""

    status: int
    body: Any = None
    after_s: float = 0.0


class Asked(NamedTuple):
    method: str
    path: str
    body: Any
    headers: dict[str, str]


class FakeRegistry:
    """Answers as it is told to: one answer after the other, the last one for ever."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.answers: list[Answer] = []
        self.asked: list[Asked] = []
        self.released = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # head and body are two packets

            def do_GET(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                outer.asked.append(Asked(self.command, self.path, body, dict(self.headers)))
                answer = outer.answers.pop(0) if len(outer.answers) > 1 else outer.answers[0]
                outer.released.wait(answer.after_s)
                said = (answer.body if isinstance(answer.body, str) else json.dumps(answer.body)).encode()
                self.send_response(answer.status)
                self.send_header("Content-Length", str(len(said)))
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.end_headers()
                self.wfile.write(said)

            do_POST = do_GET  # noqa: N815 - the names of http.server

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A client that does not trust us, or waited no longer, is no news."""

        self.server = Server(("127.0.0.1", 0), Handler)
        if tls is not None:
            # The handshake belongs into the thread of the connection
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.server.server_port}"
        self._thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.released.set()
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()


@pytest.fixture(scope="module")
def impatient() -> Iterator[None]:
    """The client waits for answers for a fifth of a second, and hardly before it asks again."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "ANSWER_TIMEOUT_S", 0.2)
        patched.setattr(module, "RETRY_WAIT_MS", 1)
        yield


@pytest.fixture(scope="module")
def shared(impatient: None) -> Iterator[FakeRegistry]:
    """One server for all: a client reads all authorities that browsers trust before it is ready."""
    server = FakeRegistry()
    yield server
    server.close()


@pytest.fixture(scope="module")
def client(shared: FakeRegistry) -> Iterator[SchemaRegistry]:
    with configured(url=shared.url) as opened:
        yield opened


@pytest.fixture
def fake(shared: FakeRegistry) -> FakeRegistry:
    """The server, which was asked nothing yet."""
    shared.asked.clear()
    return shared


def configured(**options: Any) -> SchemaRegistry:
    return SchemaRegistry(RegistryConfig.model_validate(options))


CALLS: dict[str, Callable[[SchemaRegistry], Any]] = {
    "register": lambda client: client.register("orders-value", "AVRO", SCHEMA),
    "text_of": lambda client: client.text_of(7),
    "compatibility": lambda client: client.compatibility("orders-value"),
    "problems": lambda client: client.problems("orders-value", "AVRO", SCHEMA),
}
every_call = pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))


def test_a_schema_is_sent_as_it_is_written(fake: FakeRegistry, client: SchemaRegistry) -> None:
    fake.answers = [Answer(200, {"id": 7})]
    assert client.register("shop.public.orders/x-value", "AVRO", SCHEMA) == 7
    [asked] = fake.asked
    assert (asked.method, asked.path.lower()) == (
        "POST",
        "/subjects/shop.public.orders%2fx-value/versions?normalize=false",
    )
    assert (asked.body["schema"], asked.body["schemaType"]) == (SCHEMA, "AVRO")


@every_call
def test_each_call_asks_again(
    fake: FakeRegistry, client: SchemaRegistry, call: Callable[[SchemaRegistry], Any]
) -> None:
    """The registry may have lost a schema since, or be another one."""
    everything = {"id": 7, "subject": "s", "version": 1, "schema": SCHEMA, "compatibilityLevel": "FULL"}
    fake.answers = [Answer(200, {**everything, "is_compatible": True})]
    assert call(client) == call(client)
    assert len(fake.asked) == 2


def test_what_is_found(fake: FakeRegistry, client: SchemaRegistry) -> None:
    fake.answers = [Answer(200, {"schema": SCHEMA})]
    assert client.text_of(7) == SCHEMA
    assert fake.asked[0].path == "/schemas/ids/7"


@pytest.mark.parametrize("code", [40401, 40402, 40403])
def test_what_is_not_known(fake: FakeRegistry, client: SchemaRegistry, code: int) -> None:
    fake.answers = [Answer(404, {"error_code": code, "message": "not found"})]
    assert client.text_of(7) is None
    assert client.problems("s", "AVRO", SCHEMA) == ()
    with pytest.raises(RegistryRefused, match="was asked to register a schema of s: not found"):
        client.register("s", "AVRO", SCHEMA)


def test_the_compatibility_is_the_subjects_or_that_of_all(fake: FakeRegistry, client: SchemaRegistry) -> None:
    fake.answers = [Answer(200, {"compatibilityLevel": "FULL_TRANSITIVE"})]
    assert client.compatibility("s") == "FULL_TRANSITIVE"
    fake.answers = [
        Answer(404, {"error_code": 40408, "message": "no subject-level compatibility"}),
        Answer(200, {"compatibilityLevel": "BACKWARD"}),
    ]
    assert client.compatibility("s") == "BACKWARD"
    assert [each.path for each in fake.asked] == ["/config/s", "/config/s", "/config"]


def test_problems_are_the_registrys_reasons_without_what_it_compared(
    fake: FakeRegistry, client: SchemaRegistry
) -> None:
    reason = "{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field x has no default'}"
    about = ["{oldSchemaVersion: 1}", "{oldSchema: '{}'}", "{validateFields: 'false', compatibility: 'BACKWARD'}"]
    mode = Answer(200, {"compatibilityLevel": "BACKWARD"})
    fake.answers = [Answer(200, {"is_compatible": False, "messages": [reason, *about]}), mode]
    assert client.problems("a/b", "AVRO", SCHEMA) == (reason,)
    assert fake.asked[0].path == "/compatibility/subjects/a%2Fb/versions/latest?normalize=false&verbose=true"

    fake.answers = [Answer(200, {"is_compatible": False}), mode]
    assert client.problems("s", "AVRO", SCHEMA) == ("not compatible by mode BACKWARD; the registry gives no reasons",)
    fake.answers = [Answer(200, {"is_compatible": False}), Answer(200, {"compatibilityLevel": "NONE"})]
    assert client.problems("s", "AVRO", SCHEMA) == ()
    fake.answers = [Answer(200, {"is_compatible": True})]
    assert client.problems("s", "AVRO", SCHEMA) == ()


@every_call
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(408, ""), "HTTP status 408"),
        (Answer(429, {"error_code": 42901, "message": "too many requests"}), "too many requests"),
        (Answer(500, {"error_code": 50001, "message": "Error in the backend data store"}), "backend data store"),
        (Answer(503, PAGE), "HTTP status 503"),
        (Answer(502, []), "HTTP status 502"),
    ],
)
def test_an_outage_is_asked_once_more_and_is_worth_another_try(
    fake: FakeRegistry, client: SchemaRegistry, call: Callable[[SchemaRegistry], Any], answer: Answer, words: str
) -> None:
    fake.answers = [answer]
    with pytest.raises(RegistryUnavailable, match=words) as caught:
        call(client)
    assert fake.url in str(caught.value)
    assert PAGE not in str(caught.value)
    assert (caught.value.retryable, caught.value.exit_code) == (True, 4)
    assert len(fake.asked) == 2


@every_call
@pytest.mark.parametrize(
    ("answer", "words", "remedy"),
    [
        (Answer(301, ""), "is not a schema registry", "correct registry.url"),
        (Answer(400, {"error_code": 400, "message": "odd"}), "odd", "correct registry.url"),
        (Answer(401, {"error_code": 401, "message": "Unauthorized"}), "does not let us in", "registry.password"),
        (Answer(401, PAGE), "does not let us in: HTTP status 401", "registry.token"),
        (Answer(403, {"error_code": 40301, "message": "no right"}), "does not allow us (to|for) .*no right", "allow"),
        (Answer(404, PAGE), "is not a schema registry", "/apis/ccompat/v7 for Apicurio"),
        (Answer(404, {"error_code": 404, "message": "HTTP 404 Not Found"}), "not a schema registry", "registry.url"),
        (Answer(409, {"error_code": 409, "message": "READER_FIELD_MISSING"}), "READER_FIELD_MISSING", "NONE"),
        (Answer(422, {"error_code": 42201, "message": "Invalid schema"}), "does not take it: Invalid", "report that"),
        (Answer(200, PAGE), "is not a schema registry", "correct registry.url"),
        (Answer(200, "{"), "is not a schema registry", "correct registry.url"),
        (Answer(200, {"hello": "world"}), "is not a schema registry", "correct registry.url"),
        (Answer(200, ["hello"]), "is not a schema registry", "correct registry.url"),
        (Answer(200, ""), "is not a schema registry", "correct registry.url"),
        (Answer(204, ""), "is not a schema registry", "correct registry.url"),
    ],
)
def test_a_refusal_is_asked_once_and_says_what_to_do(
    fake: FakeRegistry,
    client: SchemaRegistry,
    call: Callable[[SchemaRegistry], Any],
    answer: Answer,
    words: str,
    remedy: str,
) -> None:
    fake.answers = [answer]
    with pytest.raises(RegistryRefused, match=words) as caught:
        call(client)
    assert remedy in caught.value.remedy
    assert fake.url in str(caught.value)
    assert PAGE not in str(caught.value)
    assert (caught.value.retryable, caught.value.exit_code) == (False, 3)
    assert len(fake.asked) == 1


def test_long_reasons_are_cut(fake: FakeRegistry, client: SchemaRegistry) -> None:
    fake.answers = [Answer(409, {"error_code": 409, "message": "why " + "x" * 10_000})]
    with pytest.raises(RegistryRefused, match=r"why x+ … \(HTTP status 409\)") as caught:
        client.register("s", "AVRO", SCHEMA)
    assert len(str(caught.value)) < 3000


@every_call
def test_silence_ends(fake: FakeRegistry, client: SchemaRegistry, call: Callable[[SchemaRegistry], Any]) -> None:
    fake.answers = [Answer(200, {}, after_s=30)]
    started = time.monotonic()
    with pytest.raises(RegistryUnavailable, match=r"does not answer: .*timed out"):
        call(client)
    assert time.monotonic() - started < 5


def test_one_call_ends_within_half_a_minute() -> None:
    """A broken connection takes the time to connect, silence the time to answer; twice, with a pause between."""
    assert 2 * (module.CONNECT_TIMEOUT_S + module.ANSWER_TIMEOUT_S) + module.RETRY_WAIT_MS / 1000 <= 30


@pytest.fixture(scope="module")
def gone(impatient: None) -> Iterator[SchemaRegistry]:
    server = FakeRegistry()
    server.close()
    with configured(url=server.url) as client:
        yield client


@every_call
def test_nobody_there(gone: SchemaRegistry, call: Callable[[SchemaRegistry], Any]) -> None:
    with pytest.raises(RegistryUnavailable, match=r"does not answer: .*(refused|failed)"):
        call(gone)


def test_another_address_is_tried_at_once(fake: FakeRegistry) -> None:
    fake.answers = [Answer(200, {"id": 7})]
    gone = FakeRegistry()
    gone.close()
    with configured(url=f"{gone.url},{fake.url}/") as client:
        assert client.register("s", "AVRO", SCHEMA) == 7
        fake.answers = [Answer(503, "")]
        with pytest.raises(RegistryUnavailable, match=f"{gone.url},{fake.url} cannot answer now"):
            client.register("s", "AVRO", SCHEMA)
    assert len(fake.asked) == 2


def test_a_user_logs_in(fake: FakeRegistry) -> None:
    fake.answers = [Answer(200, {"id": 7})]
    with configured(url=fake.url, user="cdc", password="pä:ss") as client:
        client.register("s", "AVRO", SCHEMA)
        said = fake.asked[0].headers["Authorization"].removeprefix("Basic ")
        assert base64.b64decode(said).decode() == "cdc:pä:ss"
        fake.answers = [Answer(401, "")]
        with pytest.raises(RegistryRefused) as caught:
            client.register("s", "AVRO", SCHEMA)
    assert "pä:ss" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_token_is_sent(fake: FakeRegistry) -> None:
    fake.answers = [Answer(200, {"id": 7})]
    with configured(url=fake.url, token="to.ke.n") as client:
        client.register("s", "AVRO", SCHEMA)
        fake.answers = [Answer(401, "")]
        with pytest.raises(RegistryRefused, match="does not let us in") as caught:
            client.register("s", "AVRO", SCHEMA)
    assert [each.headers["Authorization"] for each in fake.asked] == ["Bearer to.ke.n"] * 2
    assert "to.ke.n" not in str(caught.value)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def secured(impatient: None, authority: Authority) -> Iterator[FakeRegistry]:
    """A registry that lets in who shows a certificate of the same authority."""
    mine = authority.sign("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(mine.certificate, mine.key)
    context.load_verify_locations(authority.root)
    context.verify_mode = ssl.CERT_REQUIRED
    server = FakeRegistry(context)
    server.answers = [Answer(200, {"id": 7})]
    yield server
    server.close()


def test_certificates_of_both_sides(secured: FakeRegistry, authority: Authority, tmp_path: Path) -> None:
    ours = authority.sign("cdc")
    files = {"ca_file": str(authority.root), "certificate_file": str(ours.certificate), "key_file": str(ours.key)}
    with configured(url=secured.url, **files) as client:
        assert client.register("s", "AVRO", SCHEMA) == 7
    with configured(url=secured.url, ca_file=str(authority.root), certificate_file=str(ours.both)) as client:
        assert client.register("s", "AVRO", SCHEMA) == 7


def test_a_certificate_problem_is_no_outage(secured: FakeRegistry, authority: Authority, tmp_path: Path) -> None:
    ours = authority.sign("cdc")
    stranger = Authority.stranger(tmp_path)
    strangers = stranger.sign("who")
    for files in (
        {},
        {"ca_file": stranger.root, "certificate_file": ours.both},
        {"ca_file": authority.root},
        {"ca_file": authority.root, "certificate_file": strangers.both},
    ):
        named = {key: str(path) for key, path in files.items()}
        with (
            configured(url=secured.url, **named) as client,
            pytest.raises(RegistryRefused, match="no TLS connection") as caught,
        ):
            client.register("s", "AVRO", SCHEMA)
        assert "registry.ca_file" in caught.value.remedy


def test_tls_asked_of_a_registry_without_it(fake: FakeRegistry) -> None:
    fake.answers = [Answer(200, {})]
    with (
        configured(url=fake.url.replace("http:", "https:")) as client,
        pytest.raises(RegistryRefused, match="no TLS connection"),
    ):
        client.register("s", "AVRO", SCHEMA)


@pytest.mark.parametrize("key", ["ca_file", "certificate_file"])
def test_a_file_that_cannot_be_used(tmp_path: Path, authority: Authority, key: str) -> None:
    with pytest.raises(ConfigError, match=rf"registry\.{key}: cannot read .*/gone: No such file"):
        configured(**{"url": "https://x", key: str(tmp_path / "gone")})
    (tmp_path / "text").write_text("hello")
    with pytest.raises(ConfigError, match="a certificate or key of the registry cannot be used"):
        configured(**{"url": "https://x", key: str(tmp_path / "text")})


def test_a_key_with_a_password_is_refused_and_nobody_is_asked_for_it(tmp_path: Path, authority: Authority) -> None:
    from cryptography.hazmat.primitives import serialization

    ours = authority.sign("cdc")
    key = serialization.load_pem_private_key(ours.key.read_bytes(), None)
    form, locked = serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"secret")
    ours.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, locked))
    files = {"certificate_file": str(ours.certificate), "key_file": str(ours.key)}
    with pytest.raises(ConfigError, match="cannot be used"):
        configured(url="https://x", **files)


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="needs the extra registry; not installed: attrs") as caught:
        configured(url="https://x")
    assert "cdc-bridge[registry]" in caught.value.remedy
