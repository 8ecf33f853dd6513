"""Looks after a deployment: ``cdc status``, ``cdc check``, ``cdc init``, the dashboard, and Spark jobs as commands.

Start with ``status/parts.py`` (what is asked), ``status/standing.py`` (what the answers mean) and
``status/document.py`` (how they are shown). ``dashboard`` shows the same on a web page, ``setup`` writes a first
configuration, ``jobs`` starts Spark. Only ``cli`` imports this package.
"""
