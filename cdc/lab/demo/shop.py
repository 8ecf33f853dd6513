"""The shop's seeded traffic: every kind of change that a bridge must get right, in one plausible schema.

Every transaction keeps an invariant: ``orders.total`` is the sum of ``order_lines.amount`` of the order. A replica that
shows part of a transaction breaks it, and ``shop_tables.BROKEN_ORDERS`` counts the orders that do.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, LiteralString

import psycopg
from psycopg.types.json import Jsonb

_DESCRIPTION_BYTES = 4500
"""Random bytes in a description. As base64 they are about 6 kB and hardly compress, so they are stored out of line."""

_KNOWN_ORDERS: Final = 2_000
"""How many of the existing orders the traffic changes; more would cost the demo memory and time."""

_ADJECTIVES = ("plain", "große", "tiny", "red", "складной", 'quoted "q"', "back\\slash", "two\nlines")
_NOUNS = ("mug", "lamp", "椅子", "kettle", "blanket", "🧵 thread", "desk")

Change = Callable[[psycopg.Cursor[Any]], int]


class Traffic:
    """Seeded mixed traffic on one connection; the same seed makes the same transactions.

    It changes existing rows as well as its own, so the tables must be filled.

    Args:
        connection: a connection to the source in autocommit mode, after ``open_shop``.
        seed: the seed of all random choices.
    """

    def __init__(self, connection: psycopg.Connection[Any], seed: int) -> None:
        self._connection = connection
        self._random = random.Random(seed)
        self._customers = _texts(connection, 'SELECT email FROM customers ORDER BY email COLLATE "C"')
        self._skus = _texts(connection, 'SELECT sku FROM products ORDER BY sku COLLATE "C"')
        self._orders, self._next_id = _some_orders(connection)
        self._kinds: tuple[tuple[Change, int], ...] = (
            (self._register, 12),
            (self._list_product, 5),
            (self._place_order, 30),
            (self._change_line, 20),
            (self._pay, 10),
            (self._cancel_order, 6),
            (self._renumber_order, 4),
            (self._change_email, 3),
            (self._rename_product, 2),
            (self._reprice, 10),
            (self._restock, 1),
            (self._fill_cart, 12),
            (self._regret_half, 4),
        )

    def step(self) -> int:
        """Commit one transaction, or roll it back one time in thirty; returns the number of committed row changes.

        Foreign keys with CASCADE may change more rows than are counted here, so the number is a lower bound.
        """
        if self._random.random() < 1 / 30:
            self._roll_back()
            return 0
        change = self._random.choices([kind for kind, _ in self._kinds], [weight for _, weight in self._kinds])[0]
        with self._connection.pipeline(), self._connection.transaction(), self._connection.cursor() as cursor:
            return change(cursor)

    def truncate_carts(self) -> int:
        """Empty ``carts`` with TRUNCATE, and put one row back in the same transaction."""
        with self._connection.transaction(), self._connection.cursor() as cursor:
            cursor.execute("TRUNCATE carts")
            return 1 + self._fill_cart(cursor)

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id

    def _text(self) -> str:
        return f"{self._random.choice(_ADJECTIVES)} {self._random.choice(_NOUNS)}"

    def _description(self) -> str:
        return base64.b64encode(self._random.randbytes(_DESCRIPTION_BYTES)).decode()

    def _attributes(self) -> Jsonb | None:
        if self._random.random() < 0.1:
            return None
        return Jsonb({"weight": self._random.random() * 10, "dims": [1, None, {"d": self._text()}], "new": True})

    def _register(self, cursor: psycopg.Cursor[Any]) -> int:
        emails = [f"c{self._new_id()}@example.org" for _ in range(self._random.randint(1, 6))]
        for email in emails:
            cursor.execute(
                "INSERT INTO customers (email, name, address) VALUES (%s, %s, %s)",
                (email, self._text(), self._attributes()),
            )
        self._customers += emails
        return len(emails)

    def _list_product(self, cursor: psycopg.Cursor[Any]) -> int:
        sku = f"SKU-{self._new_id()}"
        tags = self._random.choice(([], None, ["a", None, "NULL", 'x"y'], [self._text() for _ in range(3)]))
        cursor.execute(
            "INSERT INTO products VALUES (%s, %s, %s, %s, %s, %s, now(), %s)",
            (sku, self._text(), self._price(), 100, tags, self._attributes(), self._description()),
        )
        self._skus.append(sku)
        return 1

    def _price(self) -> Decimal:
        return Decimal(self._random.randint(1, 99_999)) / 100

    def _place_order(self, cursor: psycopg.Cursor[Any], *, forget: bool = False) -> int:
        order, lines = self._new_id(), {number: self._price() for number in range(1, self._random.randint(2, 6))}
        customer = self._random.choice(self._customers)
        cursor.execute(
            "INSERT INTO orders VALUES (%s, %s, now(), 'new', %s)", (order, customer, sum(lines.values(), Decimal()))
        )
        for number, amount in lines.items():
            sku = self._random.choice(self._skus)
            cursor.execute("INSERT INTO order_lines VALUES (%s, %s, %s, 1, %s)", (order, number, sku, amount))
        cursor.execute("DELETE FROM carts WHERE customer = %s", (customer,))
        # The stock changes and the description does not, so PostgreSQL sends "unchanged TOAST" for the description.
        cursor.execute("UPDATE products SET stock = stock - 1 WHERE sku = %s", (sku,))
        if not forget:
            self._orders[order] = lines
        return 2 + len(lines)

    def _change_line(self, cursor: psycopg.Cursor[Any]) -> int:
        if not self._orders:
            return self._place_order(cursor)
        order, lines = self._random.choice(list(self._orders.items()))
        number = self._random.choice(list(lines))
        lines[number] = self._price()
        cursor.execute(
            "UPDATE order_lines SET amount = %s, quantity = quantity + 1 WHERE order_id = %s AND line_no = %s",
            (lines[number], order, number),
        )
        cursor.execute("UPDATE orders SET total = %s WHERE id = %s", (sum(lines.values(), Decimal()), order))
        return 2

    def _pay(self, cursor: psycopg.Cursor[Any]) -> int:
        if not self._orders:
            return self._place_order(cursor)
        orders = self._random.choices(list(self._orders), k=4)
        cursor.execute("UPDATE orders SET status = 'paid' WHERE id = ANY(%s)", (orders,))
        return len(set(orders))

    def _cancel_order(self, cursor: psycopg.Cursor[Any]) -> int:
        if not self._orders:
            return self._place_order(cursor)
        order = self._random.choice(list(self._orders))
        cursor.execute("DELETE FROM orders WHERE id = %s", (order,))
        return 1 + len(self._orders.pop(order))

    def _renumber_order(self, cursor: psycopg.Cursor[Any]) -> int:
        if not self._orders:
            return self._place_order(cursor)
        old, new = self._random.choice(list(self._orders)), self._new_id()
        cursor.execute("UPDATE orders SET id = %s WHERE id = %s", (new, old))
        self._orders[new] = self._orders.pop(old)
        return 1 + len(self._orders[new])

    def _change_email(self, cursor: psycopg.Cursor[Any]) -> int:
        index, email = self._random.randrange(len(self._customers)), f"moved-{self._new_id()}@example.org"
        cursor.execute("UPDATE customers SET email = %s WHERE email = %s", (email, self._customers[index]))
        self._customers[index] = email
        return 1

    def _rename_product(self, cursor: psycopg.Cursor[Any]) -> int:
        index, sku = self._random.randrange(len(self._skus)), f"SKU-{self._new_id()}"
        cursor.execute("UPDATE products SET sku = %s WHERE sku = %s", (sku, self._skus[index]))
        self._skus[index] = sku
        return 1

    def _reprice(self, cursor: psycopg.Cursor[Any]) -> int:
        sku = self._random.choice(self._skus)
        if self._random.random() < 0.2:
            cursor.execute("UPDATE products SET description = %s WHERE sku = %s", (self._description(), sku))
        else:
            cursor.execute(
                "UPDATE products SET price = %s, attributes = %s WHERE sku = %s",
                (self._price(), self._attributes(), sku),
            )
        return 1

    def _restock(self, cursor: psycopg.Cursor[Any]) -> int:
        skus = self._random.sample(self._skus, min(50, len(self._skus)))
        cursor.execute("UPDATE products SET stock = stock + 10, restocked_at = now() WHERE sku = ANY(%s)", (skus,))
        return len(skus)

    def _fill_cart(self, cursor: psycopg.Cursor[Any]) -> int:
        rows = {(self._random.choice(self._customers), self._random.choice(self._skus)) for _ in range(4)}
        for customer, sku in sorted(rows):
            cursor.execute(
                "INSERT INTO carts VALUES (%s, %s, 1)"
                " ON CONFLICT (customer, sku) DO UPDATE SET quantity = carts.quantity + 1",
                (customer, sku),
            )
        return len(rows)

    def _regret_half(self, cursor: psycopg.Cursor[Any]) -> int:
        changes = self._fill_cart(cursor)
        cursor.execute("SAVEPOINT regret")
        self._place_order(cursor, forget=True)
        cursor.execute("DELETE FROM carts")
        cursor.execute("ROLLBACK TO SAVEPOINT regret")
        return changes + self._place_order(cursor)

    def _roll_back(self) -> None:
        with self._connection.transaction(force_rollback=True), self._connection.cursor() as cursor:
            self._place_order(cursor, forget=True)
            cursor.execute("TRUNCATE carts")


def _texts(connection: psycopg.Connection[Any], query: LiteralString) -> list[str]:
    return [row[0] for row in connection.execute(query)]


def _some_orders(connection: psycopg.Connection[Any]) -> tuple[dict[int, dict[int, Decimal]], int]:
    """Returns orders spread over the table, each with the amounts of its lines, and the highest order id."""
    newest = connection.execute("SELECT max(id) FROM orders").fetchone()
    assert newest is not None
    every = max(newest[0] // _KNOWN_ORDERS, 1)
    orders: dict[int, dict[int, Decimal]] = {}
    for order, line, amount in connection.execute(
        "SELECT order_id, line_no, amount FROM order_lines WHERE order_id %% %s = 0 ORDER BY 1, 2", (every,)
    ):
        orders.setdefault(order, {})[line] = amount
    return orders, newest[0]
