"""The parts of a long-running process: signals and retries, threads that cannot end unnoticed, logs, HTTP."""
