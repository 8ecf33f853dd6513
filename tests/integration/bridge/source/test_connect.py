"""Connecting: pinned settings, and libpq's complaints as errors that name who, where and what to do."""

from __future__ import annotations

import psycopg
import pytest

from cdc.base.errors import ConfigError, SourceRefused, SourceUnavailable
from cdc.bridge.source.connect import PINNED_SETTINGS, connect, describe, source_errors
from cdc.lab.stack.embedded import free_port
from tests.integration.ops.status.preflighting import findings, troubles
from tests.support.servers import OwnStack


def test_pinned_settings_hold_against_role_database_and_options(database):
    database.execute(f"alter database {database.name} set timezone = 'Asia/Tokyo'")
    database.execute(f"alter database {database.name} set extra_float_digits = -3")
    arguments = {"conninfo": database.dsn, "options": "-c TimeZone=America/Lima -c work_mem=5MB"}
    with connect(arguments, application_name="cdc test") as conn:
        for name, value in PINNED_SETTINGS.items():
            shown = conn.execute("select current_setting(%s)", (name,)).fetchone()
            assert shown is not None
            assert shown[0].replace(", ", ",") == value, name
        assert conn.execute("show work_mem").fetchone() == ("5MB",)
        assert conn.execute("show client_encoding").fetchone() == ("UTF8",)
        assert conn.execute("show application_name").fetchone() == ("cdc test",)
        assert conn.autocommit


def test_values_whose_text_depends_on_the_session(database):
    database.execute("create table public.t (id int primary key)")
    with connect({"conninfo": database.dsn}, application_name="test") as conn:
        row = conn.execute(
            "select 'public.t'::regclass::text, '1234.5'::money::text, '1 day 2:03:04'::interval::text,"
            " '2024-02-03 04:05:06+00'::timestamptz::text, 0.1::float8::text, '\\x00ff'::bytea::text"
        ).fetchone()
    assert row == ("public.t", "$1,234.50", "1 day 02:03:04", "2024-02-03 04:05:06+00", "0.1", "\\x00ff")


def test_nobody_answers(database):
    port = free_port()
    with pytest.raises(SourceUnavailable, match=f"127.0.0.1:{port}/{database.name}") as error:
        connect({"conninfo": database.dsn, "port": str(port)}, application_name="test")
    assert "source.dsn" in error.value.remedy


def test_database_that_is_not_there(database):
    with pytest.raises(SourceRefused, match='database "no_such_db" does not exist') as error:
        connect({"conninfo": database.dsn, "dbname": "no_such_db"}, application_name="test")
    assert "source.dsn" in error.value.remedy


def test_role_that_is_not_there(database):
    role = f"missing_{database.name}"
    arguments = {"conninfo": database.dsn, "user": role}
    with pytest.raises(SourceRefused, match=f'role "{role}" does not exist') as error:
        connect(arguments, application_name="test")
    database.execute(error.value.remedy.partition(";")[0])
    try:
        with connect(arguments, application_name="test") as conn:
            assert conn.execute("select rolreplication from pg_roles where rolname = current_user").fetchone() == (
                True,
            )
    finally:
        database.execute(f"drop role {role}")


def test_role_that_may_not_log_in(database):
    role = f"quiet_{database.name}"
    database.execute(f"create role {role}")
    try:
        with pytest.raises(SourceRefused, match="not permitted to log in") as error:
            connect({"conninfo": database.dsn, "user": role}, application_name="test")
        database.execute(error.value.remedy)
        connect({"conninfo": database.dsn, "user": role}, application_name="test").close()

        database.execute(f"revoke connect on database {database.name} from public")
        with pytest.raises(SourceRefused, match="permission denied for database") as error:
            connect({"conninfo": database.dsn, "user": role}, application_name="test")
        database.execute(error.value.remedy)
        connect({"conninfo": database.dsn, "user": role}, application_name="test").close()
    finally:
        database.execute(f"drop owned by {role}")
        database.execute(f"drop role {role}")


def test_wrong_password_is_told_without_it(own_stack: OwnStack):
    server = own_stack.postgres()
    with psycopg.connect(server.dsn(), autocommit=True) as superuser:
        superuser.execute("create role captor login replication password 'Corr3ct'")
        superuser.execute("create table t (id int primary key)")
        superuser.execute("grant select on t to captor; alter table t owner to captor")
        superuser.execute("grant create on database postgres to captor")
        # pg_hba.conf decides by the first line that matches
        rules = server.directory / "data" / "pg_hba.conf"
        rules.write_text("host all captor 127.0.0.1/32 scram-sha-256\nhost all postgres 127.0.0.1/32 trust\n")
        superuser.execute("select pg_reload_conf()")
        superuser.execute("create role stranger login")
    dsn = f"host=127.0.0.1 port={server.port} dbname=postgres user=captor"

    for source in ({"password": "Wr0ng-secret"}, {}):
        failure = troubles(findings(dsn, **source))["connection"]
        assert "captor@127.0.0.1" in failure.text
        assert "Wr0ng" not in f"{failure}"
        assert "source.password" in failure.remedy
    assert troubles(findings(dsn, password="Corr3ct")) == {}

    failure = troubles(findings(dsn.replace("captor", "stranger")))["connection"]
    assert "no pg_hba.conf entry" in failure.text
    assert "pg_hba.conf" in failure.remedy


def test_connection_string_that_libpq_does_not_know_stays_secret():
    with pytest.raises(ConfigError) as error:
        connect({"conninfo": "host=db sekret=Wr0ng"}, application_name="test")
    assert "Wr0ng" not in str(error.value)
    assert error.value.__cause__ is None


def test_description_has_no_secret():
    arguments = {"conninfo": "postgresql://me:pw@db.example:5433/shop", "password": "pw2"}
    assert describe(arguments) == "me@db.example:5433/shop"


def test_connection_lost_is_an_outage(database):
    with connect({"conninfo": database.dsn}, application_name="test") as conn:
        database.execute("select pg_terminate_backend(%s, 30000)", [conn.info.backend_pid])
        with pytest.raises(SourceUnavailable, match="while reading"), source_errors("reading"):
            conn.execute("select 1")
