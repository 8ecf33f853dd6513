"""What writers and readers of topics agree on: names, headers, keys, values, partitions, progress. Pure: no I/O.

Start with ``change`` (what PostgreSQL said), ``record`` (what Kafka holds) and ``ports`` (what one room needs of
another). ``formats`` turns rows into the bytes of keys and values and back, and knows which spellings of a key are
equal; a new format of values belongs there. ``jobspec`` is what a Spark job is told. Any of it may be imported from
anywhere; nothing of the contract's first version changes without a new version.
"""
