"""Capture pgoutput's bytes from a real server, beside what they must mean.

    python tests/golden/capture.py "host=… user=…"

Makes a database of its own, runs the scenario below and writes ``pgoutput_<major>.json``. The decoder is not asked:
what each statement must be decoded to stands here by hand, and values are what SELECT returns.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import psycopg

HERE = Path(__file__).parent
DATABASE = "cdc_golden"

SETTINGS = """
    SET timezone = 'UTC'; SET datestyle = 'ISO'; SET intervalstyle = 'postgres'; SET bytea_output = 'hex';
    SET extra_float_digits = 1; SET logical_decoding_work_mem = '64kB';
"""

TABLES = r"""
    CREATE TYPE mood AS ENUM ('sad', 'ok', 'very happy');
    CREATE TYPE pair AS (left_one int, right_one text);
    CREATE DOMAIN price AS numeric(12,2);
    CREATE DOMAIN small_price AS price CHECK (VALUE < 100);
    CREATE DOMAIN tag_list AS text[];
    CREATE SCHEMA "Odd "". Schema";
    CREATE TYPE "Odd "". Schema"."dotted.type" AS ENUM ('x');
    CREATE TABLE plain (id int PRIMARY KEY, note text);
    CREATE TABLE big (id int PRIMARY KEY, note text, body text);
    ALTER TABLE big ALTER body SET STORAGE EXTERNAL;
    CREATE TABLE whole (id int PRIMARY KEY, note text, body text);
    ALTER TABLE whole ALTER body SET STORAGE EXTERNAL;
    ALTER TABLE whole REPLICA IDENTITY FULL;
    CREATE TABLE by_index (a int NOT NULL, b text NOT NULL, note text);
    CREATE UNIQUE INDEX by_index_key ON by_index (b, a);
    ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_index_key;
    CREATE TABLE parted (id int, region text, PRIMARY KEY (region, id)) PARTITION BY LIST (region);
    CREATE TABLE parted_eu PARTITION OF parted FOR VALUES IN ('eu');
    CREATE TABLE parted_us PARTITION OF parted FOR VALUES IN ('us');
    CREATE TABLE "Odd "". Schema"."Ta%ble" (
        "I.d" int PRIMARY KEY, "co""lumn" text, "%d" "Odd "". Schema"."dotted.type");
    CREATE TABLE kinds (
        id bigint PRIMARY KEY, b bool, i2 int2, i8 int8, o oid, f4 float4, f8 float8, n numeric, n2 numeric(12,2),
        t text, c char(5), v varchar(20), q "char", nm name, by bytea, d date, ti time(3), tz timetz, ts timestamp(3),
        tstz timestamptz, iv interval, iv2 interval day to second(3), u uuid, j json, jb jsonb, x xml, ip inet, ci cidr,
        mac macaddr, bits bit(3), vb varbit(5), m money, r int4range, tr tstzrange, mr int4multirange, pt point, bx box,
        l pg_lsn, vec int2vector, tsv tsvector, md mood, mds mood[], p pair, pr price, sp small_price, tg tag_list,
        ia int[], ta text[], fa float8[], ba bool[], ja json[], jba jsonb[], na numeric(12,2)[], boxes box[],
        tsa timestamptz[], bya bytea[], gone int, gen int GENERATED ALWAYS AS (i2 + 1) STORED);
    ALTER TABLE kinds DROP COLUMN gone;
    CREATE PUBLICATION golden FOR ALL TABLES WITH (publish_via_partition_root = true);
"""

KINDS_1 = r"""
    INSERT INTO kinds VALUES (
        9223372036854775807, true, -32768, -9223372036854775808, 4000000000, 1e-7, 1e+20, 'NaN', 1.10,
        E'a "quote" \\ back\n\t\x01\x7f é € 😀' || chr(8232), 'ab', 'x', 'q', 'a name', '\x00ff5c22', '4713-01-01 BC',
        '24:00:00', '11:51:30.123789+02:30', 'infinity', '294246-12-31 23:59:59.999999+00',
        '1 year 2 mons -3 days 04:05:06.78', '1 day 02:03:04.5', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11',
        E'{"a": 1.10, "a" : [1,\n 2], "\\u0041": "é"}',
        '{"b": 1e3, "a": null}', NULL, '192.168.2.0/12', '10.0.0.0/8', '08:00:2b:01:02:03', B'101', B'00',
        '-1234.5', '[1,10)', '["2020-01-01 00:00:00+00",infinity)', '{[1,3),[5,7)}', '(1.5,-2)', '((1,1),(0,0))',
        '16/B374D848', '1 2 3', $$'two words':1 plain:2$$, 'very happy', '{sad,"very happy",NULL}', '(1,"a,b")',
        5.5, 6.5, '{x,"y z"}', '{1,NULL,-3}', E'{plain,"a b","q\\"\\\\",NULL,"NULL","",é}',
        '{NaN,1.5,-Infinity,NULL,1e+300}', '{t,f,NULL}',
        E'{"{\\"a\\": [1, 2]}",null,NULL,3}', E'{"{\\"a\\": [1, 2]}"}', '{1.10,NaN}', '{(1,1),(0,0);(3,3),(2,2)}',
        '{"2020-01-01 00:00:00+00",infinity}', E'{"\\\\x00ff",NULL}')
"""

KINDS_2 = r"""
    INSERT INTO kinds (id, f8, f4, ia, ta, ba, na, t, j, jb, i2, mds, tg, c, iv, bits) VALUES (
        -1, '-Infinity', 'NaN', '{{1,2},{3,NULL}}', '[2:3]={a,b}', '{}', '[0:1]={1,2}', '', 'null', '"x"', 7, '{}',
        '{{a,b},{c,d}}', '', '-00:00:00.000001', B'000')
"""

# Each transaction: statements, and what they must be decoded to (boundaries and, at first use, schema left out).
TRANSACTIONS: list[tuple[list[str], list[str]]] = [
    (
        ["INSERT INTO plain VALUES (1, 'one'), (2, NULL), (3, '')"],
        ["Insert plain 1|one", "Insert plain 2|NULL", "Insert plain 3|"],
    ),
    (["UPDATE plain SET note = 'zwei' WHERE id = 2"], ["Update plain new 2|zwei"]),
    (["UPDATE plain SET id = 20 WHERE id = 2"], ["Update plain key 2|NULL new 20|zwei"]),
    (["DELETE FROM plain WHERE id = 3"], ["Delete plain key 3|NULL"]),
    (
        [
            "INSERT INTO plain VALUES (4, 'kept')",
            "SAVEPOINT s",
            "INSERT INTO plain VALUES (5, 'undone')",
            "ROLLBACK TO s",
            "DELETE FROM plain WHERE id = 1",
        ],
        ["Insert plain 4|kept", "Delete plain key 1|NULL"],
    ),
    (
        ["INSERT INTO big VALUES (1, 'a', repeat('x', 3000))", "UPDATE big SET note = 'b'", "UPDATE big SET id = 2"],
        [
            f"Insert big 1|a|{'x' * 3000}",
            "Update big new 1|b|UNCHANGED",
            "Update big key 1|NULL|NULL new 2|b|UNCHANGED",
        ],
    ),
    (
        ["INSERT INTO whole VALUES (1, NULL, repeat('y', 3000))", "UPDATE whole SET note = 'b'", "DELETE FROM whole"],
        [
            f"Insert whole 1|NULL|{'y' * 3000}",
            f"Update whole old 1|NULL|{'y' * 3000} new 1|b|UNCHANGED",
            f"Delete whole old 1|b|{'y' * 3000}",
        ],
    ),
    (
        ["INSERT INTO by_index VALUES (1, 'b', 'c')", "UPDATE by_index SET b = 'B'", "DELETE FROM by_index"],
        ["Insert by_index 1|b|c", "Update by_index key 1|b|NULL new 1|B|c", "Delete by_index key 1|B|NULL"],
    ),
    (
        ["INSERT INTO parted VALUES (1, 'eu'), (2, 'us')", "UPDATE parted SET region = 'us' WHERE id = 1"],
        ["Insert parted 1|eu", "Insert parted 2|us", "Delete parted key 1|eu", "Insert parted 1|us"],
    ),
    (["""INSERT INTO "Odd "". Schema"."Ta%ble" VALUES (1, 'v', 'x')"""], ["Insert Ta%ble 1|v|x"]),
    (
        ["ALTER TABLE plain ADD added numeric(5,1) DEFAULT 1.5", "UPDATE plain SET note = 'after' WHERE id = 4"],
        ["Update plain new 4|after|1.5"],
    ),
    (["SELECT pg_logical_emit_message(true, 'prefix', 'inside')"], ["Message True prefix inside"]),
    (["SELECT pg_logical_emit_message(false, 'prefix', '')"], ["Message False prefix "]),
    (
        [
            "SELECT pg_replication_origin_create('elsewhere')",
            "SELECT pg_replication_origin_session_setup('elsewhere')",
            "SELECT pg_replication_origin_xact_setup('0/ABCDEF01', '2020-01-01 00:00:00+00')",
            "INSERT INTO plain VALUES (6, 'foreign', NULL)",
        ],
        ["Origin 0/ABCDEF01 elsewhere", "Insert plain 6|foreign|NULL"],
    ),
    (["SELECT pg_replication_origin_session_reset()"], []),
    (["TRUNCATE by_index, whole RESTART IDENTITY CASCADE"], ["Truncate by_index,whole True True"]),
    (["TRUNCATE parted"], ["Truncate parted False False"]),
    ([KINDS_1], ["Insert kinds"]),
    ([KINDS_2], ["Insert kinds"]),
]

# Far above 64 kB, so that protocol 2 sends it in blocks while it runs.
STREAMED = [
    "INSERT INTO plain SELECT n, repeat('s', 20), n FROM generate_series(1001, 1450) n",
    "SAVEPOINT s",
    "INSERT INTO plain SELECT n, repeat('u', 20), n FROM generate_series(2001, 2450) n",
    "ROLLBACK TO s",
    "ALTER TABLE plain ADD late text",
    "UPDATE plain SET late = 'l' WHERE id BETWEEN 1001 AND 1150",
    "UPDATE plain SET late = 'm' WHERE id BETWEEN 1001 AND 1150",
    "SELECT pg_logical_emit_message(true, 'streamed', 'inside')",
    "TRUNCATE big",
]
STREAMED_ROLLED_BACK = ["INSERT INTO plain SELECT n, repeat('r', 20), n FROM generate_series(3001, 3450) n"]


def run(connection: psycopg.Connection, statements: list[str], *, commit: bool = True) -> None:
    for statement in statements:
        connection.execute(statement)
    if commit:
        connection.commit()
    else:
        connection.rollback()


def read(connection: psycopg.Connection, slot: str, protocol: int) -> list[str]:
    options = ["proto_version", str(protocol), "publication_names", "golden", "messages", "true"]
    options += ["streaming", "on"] if protocol == 2 else []
    rows = connection.execute(
        "SELECT encode(data, 'hex') FROM pg_logical_slot_get_binary_changes(%s, NULL, NULL, VARIADIC %s)",
        (slot, options),
    ).fetchall()
    connection.commit()
    return [hexadecimal for (hexadecimal,) in rows]


def table_text(connection: psycopg.Connection, table: str) -> dict[str, list[str | None]]:
    """Rows as the server's text, by first column; generated columns left out as pgoutput leaves them out."""
    names = connection.execute(
        "SELECT array_agg(quote_ident(attname) ORDER BY attnum) FROM pg_attribute WHERE attrelid = %s::regclass"
        " AND attnum > 0 AND NOT attisdropped AND attgenerated = ''",
        (table,),
    ).fetchall()[0][0]
    cursor = connection.execute(f"SELECT {', '.join(names)} FROM {table}")
    result = cursor.pgresult
    assert result is not None
    rows = [[result.get_value(r, c) for c in range(result.nfields)] for r in range(result.ntuples)]
    return {row[0].decode(): [None if cell is None else cell.decode() for cell in row] for row in rows if row[0]}


def column_types(connection: psycopg.Connection, table: str) -> dict[str, str]:
    """format_type of each column, a domain as its innermost base type."""
    rows = connection.execute(
        "WITH RECURSIVE base AS (SELECT attname, attnum, atttypid AS t, atttypmod AS m FROM pg_attribute"
        " WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = '' UNION ALL"
        " SELECT attname, attnum, typbasetype, -1 FROM base JOIN pg_type ON oid = t WHERE typtype = 'd')"
        " SELECT DISTINCT ON (attnum) attname, format_type(t, m) FROM base JOIN pg_type ON oid = t"
        " WHERE typtype <> 'd' ORDER BY attnum",
        (table,),
    ).fetchall()
    return dict(rows)


def capture(dsn: str) -> dict[str, object]:
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
        admin.execute(f"CREATE DATABASE {DATABASE}")
        try:
            with psycopg.connect(dsn, dbname=DATABASE) as connection:
                return capture_in(connection)
        finally:
            admin.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = %s", (DATABASE,)
            )
            admin.execute("SELECT pg_replication_origin_drop('elsewhere')")
            admin.execute(f"DROP DATABASE {DATABASE}")


def capture_in(connection: psycopg.Connection) -> dict[str, object]:
    run(connection, [SETTINGS])
    run(connection, [TABLES])
    for slot in ("golden_1", "golden_2"):
        run(connection, [f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')"])
    for statements, _ in TRANSACTIONS:
        run(connection, statements)
    tables = {table: table_text(connection, table) for table in ("plain", "big", "kinds")}
    types = {table: column_types(connection, table) for table in ("plain", "kinds", '"Odd "". Schema"."Ta%ble"')}
    connection.commit()
    plain = read(connection, "golden_1", 1)
    run(connection, ["SELECT pg_drop_replication_slot('golden_1')"])
    read(connection, "golden_2", 2)  # the same transactions; only what follows is streamed
    run(connection, STREAMED_ROLLED_BACK, commit=False)
    run(connection, STREAMED)
    run(connection, ["INSERT INTO plain VALUES (7, 'afterwards')"])
    streamed = read(connection, "golden_2", 2)
    return {
        "server": connection.info.parameter_status("server_version"),
        "protocol_1": {"messages": plain, "tables": tables, "types": types},
        "protocol_2": {"messages": streamed, "tables": {"plain": table_text(connection, "plain")}},
    }


def main() -> None:
    captured = capture(sys.argv[1])
    major = str(captured["server"]).split(".")[0]
    path = HERE / f"pgoutput_{major}.json"
    path.write_text(json.dumps(captured, indent=1, ensure_ascii=False) + "\n")
    print(f"{path}: {path.stat().st_size} bytes")  # noqa: T201  # a script's only output


if __name__ == "__main__":
    main()
