"""What every product stands on, and what knows none of them: errors, configuration, LSNs, and the parts of a daemon.

Start with ``errors`` (whose fault something is, and what to do about it) and ``config`` (one file, checked and frozen).
``daemon`` has what a process needs that never ends, ``web`` what services over HTTP share. Everything else is one small
module each: a name of a table, a metric, a wait that is worth a word. Any of it may be imported from anywhere.
"""
