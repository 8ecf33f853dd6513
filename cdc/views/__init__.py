"""Topics as tables that you can query: the process ``cdc serve``.

``feed`` fills a view, cut by cut. ``table`` keeps its rows and indexes on top of a ``store``. ``query`` answers
questions about it as bytes, and ``http`` serves the answers. Start with ``table/table_view.py`` (what can be asked) and
``store/port.py`` (what a store must do; a new one needs nothing else). Programs in Python import ``table.table_view``.
"""
