"""The shop's tables, and the rows that exist before anything captures them."""

from __future__ import annotations

from typing import Any, Final

import psycopg
from psycopg import sql

TABLES: Final = tuple(
    f"public.{table}" for table in ("customers", "products", "orders", "order_lines", "carts", "probes")
)

BROKEN_ORDERS: Final = """
SELECT count(*) FROM orders o FULL JOIN
    (SELECT order_id, sum(amount) AS amount FROM order_lines GROUP BY order_id) l ON l.order_id = o.id
WHERE o.total IS DISTINCT FROM l.amount
"""

_TABLES: Final = """
CREATE TYPE order_status AS ENUM ('new', 'paid', 'sent');
CREATE TABLE customers (
    email text PRIMARY KEY, name text NOT NULL, since timestamptz NOT NULL DEFAULT now(), address jsonb);
CREATE TABLE products (
    sku text PRIMARY KEY, name text NOT NULL, price numeric(12,2) NOT NULL, stock integer NOT NULL,
    tags text[], attributes jsonb, restocked_at timestamptz, description text);
CREATE TABLE orders (
    id bigint PRIMARY KEY, customer text NOT NULL,
    placed_at timestamptz NOT NULL DEFAULT now(), status order_status NOT NULL, total numeric(12,2) NOT NULL);
CREATE TABLE order_lines (
    order_id bigint, line_no integer, sku text NOT NULL,
    quantity integer NOT NULL, amount numeric(12,2) NOT NULL, PRIMARY KEY (order_id, line_no));
CREATE TABLE carts (customer text, sku text, quantity integer NOT NULL, PRIMARY KEY (customer, sku));
CREATE TABLE probes (id bigint PRIMARY KEY, sent_at timestamptz NOT NULL DEFAULT clock_timestamp());
"""

# A description is too long for the row and hardly compresses, so PostgreSQL stores it out of line.
_ROWS: Final = """
INSERT INTO customers SELECT
    'c' || i || '@example.org',
    (ARRAY['plain ', 'große ', 'складной ', 'quoted "q" ', E'back\\\\slash '])[1 + i %% 5] || i,
    timestamptz '2020-01-01' + i * interval '17 minutes',
    CASE WHEN i %% 10 > 0 THEN jsonb_build_object('street', i || ' Main Street', 'floor', i / 7.0, 'lift', NULL) END
FROM generate_series(1, %(customers)s) i;
INSERT INTO products SELECT
    'SKU-' || i, (ARRAY['mug', '椅子', E'two\\nlines', '🧵 thread'])[1 + i %% 4], (i * 7919 %% 99999 + 1) / 100.0, 100,
    CASE i %% 3 WHEN 0 THEN ARRAY['a', NULL, 'NULL', 'x"y'] WHEN 1 THEN '{}' END,
    CASE i %% 9 WHEN 0 THEN NULL WHEN 1 THEN 'null' ELSE jsonb_build_object('weight', i / 3.0) END, now(),
    (SELECT string_agg(md5(i || '.' || part), '') FROM generate_series(1, 150) part)
FROM generate_series(1, %(products)s) i;
INSERT INTO order_lines SELECT
    o, n, 'SKU-' || 1 + o * n %% %(products)s, 1 + o %% 3, ((o * 104729 + n * 7919) %% 99999 + 1) / 100.0
FROM generate_series(1::bigint, %(orders)s) o, generate_series(1, 3 + o %% 2) n;
INSERT INTO orders SELECT
    order_id, 'c' || 1 + order_id %% %(customers)s || '@example.org',
    timestamptz '2020-06-01' + order_id * interval '11 minutes',
    CASE order_id %% 50 WHEN 0 THEN 'paid' ELSE 'sent' END::order_status, sum(amount)
FROM order_lines GROUP BY order_id ORDER BY order_id;
INSERT INTO carts SELECT 'c' || i || '@example.org', 'SKU-' || 1 + i %% %(products)s, 1
FROM generate_series(1, %(customers)s, 10) i;
INSERT INTO probes SELECT -i FROM generate_series(0, 99) i;
"""

# Created after the rows: checking all rows at once takes a fraction of the time that checking each insert would.
_REFERENCES: Final = """
CREATE INDEX ON orders (customer);
ALTER TABLE orders ADD FOREIGN KEY (customer) REFERENCES customers ON UPDATE CASCADE;
ALTER TABLE order_lines ADD FOREIGN KEY (order_id) REFERENCES orders ON UPDATE CASCADE ON DELETE CASCADE;
ANALYZE;
"""

_MOST_PRODUCTS: Final = 1_000
"""Each product has a description of 5 kB; with more of them, these would take most of the demo's time."""


def open_shop(connection: psycopg.Connection[Any], row_count: int) -> int:
    """Create the tables and fill them.

    Args:
        connection: a connection to an empty database, in autocommit mode.
        row_count: the approximate number of rows in all tables; seven in ten of them are order lines.

    Returns:
        The number of rows.
    """
    orders, customers = row_count // 5, row_count // 10
    counts = {"orders": orders, "customers": customers, "products": min(customers, _MOST_PRODUCTS)}
    connection.execute(_TABLES)
    # A client cursor inserts the parameters itself, because the server takes them for a single statement only.
    psycopg.ClientCursor(connection).execute(_ROWS, counts)
    connection.execute(_REFERENCES)
    tables = sql.SQL(" UNION ALL ").join(
        sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(*table.split("."))) for table in TABLES
    )
    return sum(count for (count,) in connection.execute(tables))
