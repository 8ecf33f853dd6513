"""Topics → replica: the process ``cdc sink``.

``apply`` is the loop: it takes a cut from ``kafka.replay`` and hands it to a writer. ``postgres`` is the writer for
replica tables in PostgreSQL: what they look like, and how rows, offsets and the cut's LSN get there in one transaction.
Start with ``apply/session.py``. Others ask a replica through ``postgres/database.py``; views are filled by ``apply``.
"""
