"""The parts that every product uses: errors, configuration, LSNs, and the building blocks of a daemon.

Start with ``errors`` (whose fault something is, and what to do about it) and ``config`` (one file, checked and frozen).
``daemon`` has what a long-running process needs, ``web`` what services over HTTP share. The other modules are small and
have one subject each, such as table names, metrics or waits. Everything here may be imported from anywhere, and knows
no product.
"""
