"""What writers and readers of topics agree on: names, headers, keys, values, partitions, progress. Pure: no I/O.

Start with ``change`` (what PostgreSQL said), ``record`` (what Kafka holds) and ``ports`` (what one room needs from
another). ``formats`` converts rows to the bytes of keys and values and back, and knows which spellings of a key are
equal; a new format of values belongs there. ``jobspec`` describes what a Spark job receives. Everything here may be
imported from anywhere. Whoever changes the contract has to give it a new version.
"""
