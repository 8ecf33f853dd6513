"""Topics → replica: the process ``cdc sink``.

``apply`` is the loop: it takes a cut from ``kafka.replay`` and hands it to a writer. ``postgres`` is the writer for
PostgreSQL, and ``sql`` the one for other databases. A writer shapes the replica tables and writes rows, offsets and the
cut's LSN in one transaction.

Start with ``apply/session.py``, which fills views, too. Other packages open a replica with ``dialects.py``, and ask it
what ``replica.py`` says.
"""
