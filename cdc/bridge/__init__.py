"""Source → topics: the process ``cdc run``, its loop, and what it watches beside the stream."""
