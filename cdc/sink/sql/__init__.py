"""Replicas in databases other than PostgreSQL, through SQLAlchemy.

``database.py``, ``writer.py`` and ``registry.py`` are the same for all databases. ``dialect.py`` says what a database
has to know of itself: types, names, statements, locks, and what its errors mean. There is a module for each database.
"""
