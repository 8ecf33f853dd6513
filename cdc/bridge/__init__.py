"""PostgreSQL → topics: the process ``cdc run``.

A row goes from ``source`` (what the database is) and ``capture`` (its stream and its tables) through ``decode``,
``order`` and ``encode`` to ``kafka.publish``. Start with ``order/engine.py``: it asks and never calls. ``loop.py``
answers it, and confirms a position after the Kafka commit that covers it. ``backfill`` reads whole tables beside the
stream, ``scope`` says which tables, and ``asking`` is how people ask for it. Others may import ``source``, ``scope``
and ``asking``.
"""
