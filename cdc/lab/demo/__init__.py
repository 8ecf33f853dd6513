"""``cdc demo``: the whole way on real servers, killed on the way, and proven row by row at the end."""
