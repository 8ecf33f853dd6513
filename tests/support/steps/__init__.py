"""Step × disturbance: a process is stopped at a named step, the world is disturbed, and in the end all sides agree."""
