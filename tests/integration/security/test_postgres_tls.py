"""TLS to PostgreSQL: verified by bridge and sink, with client certificates; what does not fit is refused by name."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from cdc.base.errors import CdcError, ReplicaRefused, SourceRefused
from cdc.bridge.capture.copy_both import CopyBoth
from cdc.bridge.source.connect import connect
from cdc.lab.stack import Kafka, PostgresServer
from cdc.sink.postgres.session import replica_engine
from tests.support.bridge_process import CdcProcess
from tests.support.certificates import Authority, Certificate
from tests.support.deployment import deployed
from tests.support.servers import Database, fresh_database
from tests.support.waiting import eventually

pytestmark = pytest.mark.skipif(
    platform.system() != "Linux" or platform.libc_ver()[0] != "glibc",
    reason="the PostgreSQL binaries that can do TLS are made for Linux with glibc",
)


@dataclass(frozen=True)
class TlsServer:
    """A server that takes TLS only; role ``certified`` logs in with a client certificate of that name."""

    server: PostgresServer
    authority: Authority
    stranger: Authority
    client: Certificate

    def dsn(self, dbname: str = "postgres") -> str:
        """As superuser, server certificate verified, no client certificate."""
        return f"{self.server.dsn(dbname)}?sslmode=verify-full&sslrootcert={self.authority.root}"

    def certified_dsn(self, dbname: str = "postgres") -> str:
        """As ``certified``, with its certificate."""
        own = f"&user=certified&sslcert={self.client.certificate}&sslkey={self.client.key}"
        return self.dsn(dbname).replace("postgres@", "") + own

    def show(self, certificate: Certificate, authority: Authority) -> None:
        """Have new connections see this certificate, which that authority signed."""
        data = self.server.directory / "data"
        for name, source in (("server.crt", certificate.certificate), ("server.key", certificate.key)):
            shutil.copyfile(source, data / f"{name}.new")
            self._own(data / f"{name}.new")
            (data / f"{name}.new").replace(data / name)
        with psycopg.connect(self.server.dsn(), autocommit=True) as admin:
            admin.execute("ALTER SYSTEM SET ssl = on")
            admin.execute("SELECT pg_reload_conf()")
        trusting = f"{self.server.dsn()}?sslmode=verify-full&sslrootcert={authority.root}"
        eventually(lambda: _connects(trusting), message="the server shows its new certificate")

    def _own(self, path: Path) -> None:
        owner = (self.server.directory / "data").stat()
        path.chmod(0o600)
        shutil.chown(path, owner.st_uid, owner.st_gid)


def _connects(dsn: str) -> bool:
    try:
        psycopg.connect(dsn).close()
    except psycopg.OperationalError:
        return False
    return True


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsServer]:
    files = tmp_path_factory.mktemp("tls")
    authority, stranger = Authority(files), Authority.stranger(files)
    with PostgresServer.open(major=17, fsync=False) as server:
        data = server.directory / "data"
        made = TlsServer(server, authority, stranger, authority.sign("certified"))
        shutil.copyfile(authority.root, data / "root.crt")
        made._own(data / "root.crt")
        with psycopg.connect(server.dsn(), autocommit=True) as admin:
            admin.execute("ALTER SYSTEM SET ssl_ca_file = 'root.crt'")
            admin.execute("CREATE ROLE certified LOGIN SUPERUSER")
        made.show(authority.sign("server"), authority)
        (data / "pg_hba.conf").write_text("hostssl all certified all cert\nhostssl all all all trust\n")
        with psycopg.connect(server.dsn(), autocommit=True) as admin:
            admin.execute("SELECT pg_reload_conf()")
        eventually(lambda: not _connects(f"{server.dsn()}?sslmode=disable"), message="only TLS is let in")
        yield made


Open = Callable[[str], object]
ENTRANCES: dict[str, tuple[Open, type[CdcError], str]] = {
    "sql": (lambda dsn: connect({"conninfo": dsn}, application_name="test"), SourceRefused, "source.dsn"),
    "walsender": (lambda dsn: CopyBoth({"conninfo": dsn}, application_name="test"), SourceRefused, "source.dsn"),
    "sink": (
        lambda dsn: replica_engine({"conninfo": dsn}, application_name="test").connect(),
        ReplicaRefused,
        "sink.dsn",
    ),
}


def assert_refused(dsn: str, words: str, remedy: str) -> None:
    """Each entrance refuses at once, in these words, and names its own configuration key."""
    for opens, error, key in ENTRANCES.values():
        with pytest.raises(error, match=words) as refused:
            opens(dsn)
        assert not refused.value.retryable
        assert remedy in refused.value.remedy
        assert key in refused.value.remedy


def test_everything_travels_encrypted_and_a_strange_certificate_stops_both(
    tls: TlsServer, kafka: Kafka, tmp_path: Path
) -> None:
    admin = Database("postgres", tls.dsn())
    with fresh_database(tls.server) as one, fresh_database(tls.server) as other:
        source, replica = (Database(each.name, tls.certified_dsn(each.name)) for each in (one, other))
        source.execute("CREATE TABLE items (id integer PRIMARY KEY, note text)")
        with deployed(source, kafka.bootstrap, replica, tmp_path, kind=CdcProcess) as deployment:
            deployment.start()
            source.execute("INSERT INTO items VALUES (1, 'secret')")
            deployment.assert_equal("public.items")
            ours = admin.execute(
                "SELECT DISTINCT backend_type, ssl, client_dn FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)"
                " WHERE application_name LIKE 'cdc %'"
            )
            assert sorted(ours) == [
                ("client backend", True, "/CN=certified"),
                ("walsender", True, "/CN=certified"),
            ]

            tls.show(tls.stranger.sign("impostor"), tls.stranger)
            try:
                Database("postgres", tls.server.dsn()).execute(
                    "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity WHERE application_name LIKE 'cdc %'"
                )
                deployment.sink.kill()  # with nothing to write it would not notice
                deployment.sink.start()
                for process, code, key in (
                    (deployment.bridge, SourceRefused.exit_code, "source.dsn"),
                    (deployment.sink, ReplicaRefused.exit_code, "sink.dsn"),
                ):
                    said = process.refusal(code)
                    assert "certificate verify failed" in said
                    assert f"sslrootcert in {key}" in said
            finally:
                tls.show(tls.authority.sign("server"), tls.authority)


@pytest.mark.parametrize(
    ("replaced", "words", "remedy"),
    [
        pytest.param(("{root}", "{stranger}"), "certificate verify failed", "set sslrootcert in", id="wrong authority"),
        pytest.param(("{root}", "{root}.none"), "root certificate file", "set sslrootcert in", id="no such file"),
        pytest.param(
            ("127.0.0.1", "localhost"), 'does not match host name "localhost"', "hostaddr=…", id="wrong host name"
        ),
        pytest.param(("verify-full", "disable"), "no encryption", "sslmode=verify-full", id="plain to a TLS server"),
        pytest.param(
            ("verify-full&sslrootcert={root}", "require&sslrootcert=system"),
            "weak sslmode",
            "to system",
            id="weak mode",
        ),
        pytest.param(("verify-full", "full"), "invalid sslmode value", "verify-full, verify-ca", id="no such mode"),
    ],
)
def test_a_server_that_cannot_be_verified_is_refused(
    tls: TlsServer, replaced: tuple[str, str], words: str, remedy: str
) -> None:
    old, new = (each.format(root=tls.authority.root, stranger=tls.stranger.root) for each in replaced)
    assert_refused(tls.dsn().replace(old, new), words, remedy)


def test_a_server_without_tls_is_refused(database: Database) -> None:
    assert_refused(f"{database.dsn}?sslmode=require", "does not support SSL", "ssl = on")


def test_a_client_certificate_that_is_missing_or_wrong_is_refused(tls: TlsServer) -> None:
    assert _connects(tls.certified_dsn())
    own = (str(tls.client.certificate), str(tls.client.key))

    def instead(certificate: Certificate) -> str:
        return tls.certified_dsn().replace(own[0], str(certificate.certificate)).replace(own[1], str(certificate.key))

    without = f"{tls.dsn()}&user=certified".replace("postgres@", "")
    assert_refused(without, "requires a valid client certificate", "set sslcert and sslkey")
    another = tls.authority.sign("another")
    assert_refused(instead(another), "certificate authentication failed", "set sslcert and sslkey")
    assert_refused(instead(tls.stranger.sign("stranger")), "unknown ca", "set sslcert and sslkey")
    another.key.chmod(0o644)
    assert_refused(instead(another), "private key file", "chmod 600")
    another.key.unlink()
    assert_refused(instead(another), "private key file", "sslkey")
