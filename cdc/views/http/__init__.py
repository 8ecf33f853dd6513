"""HTTP over a view: rows by key, pages, counts, and what changes, each with its evidence."""
