"""Looking after a deployment: ``cdc status``, ``cdc check``, ``cdc init``, the dashboard, and Spark jobs as commands.

Start with ``status/parts.py`` (what is asked), ``status/standing.py`` (what that means) and ``status/document.py`` (how
it is told). ``dashboard`` shows the same on a page, ``setup`` writes a first configuration, ``jobs`` starts Spark. No
other product imports it.
"""
