"""Real servers in seconds, and what is shown on them: ``cdc stack``, ``cdc demo``, ``cdc learn``.

``stack`` lends a PostgreSQL, a Kafka and a Redis, embedded or in containers; the tests use it, too. ``proof`` compares
source, topic and replica row by row. Start with ``stack/stack.py``.
"""
