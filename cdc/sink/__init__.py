"""Topics → replica: the process ``cdc sink``.

``apply`` is the loop: it takes a cut from ``kafka.replay`` and hands it to a writer. ``postgres`` is the writer for
PostgreSQL. It shapes the replica tables and writes rows, offsets and the cut's LSN in one transaction.

Start with ``apply/session.py``. Other packages ask a replica through ``postgres/database.py``. ``apply`` fills views,
too.
"""
