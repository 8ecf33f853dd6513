"""Imported last by a process that others are forked from: what it holds is no garbage, and its children share it.

A collection writes into every object that it looks at, so that a child would copy all of them.
"""

import gc

gc.collect()
gc.freeze()
