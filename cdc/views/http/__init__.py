"""HTTP over a view: rows by key, pages, counts, and what changes, each with its evidence.

``application`` does what every request needs, and ``pages`` lists what clients can ask for.
"""
