"""The peer in a process of its own: prints how many differences reladiff finds between a table and its copy."""

from __future__ import annotations

import sys

import reladiff

if __name__ == "__main__":
    columns = ("customer_id", "status", "amount", "note", "created_at", "updated_at")
    tables = [
        reladiff.connect_to_table(sys.argv[1], name, "id", extra_columns=columns) for name in ("orders", "orders_copy")
    ]
    sys.stdout.write(f"{sum(1 for _ in reladiff.diff_tables(*tables, threaded=True, max_threadpool_size=2))}\n")
