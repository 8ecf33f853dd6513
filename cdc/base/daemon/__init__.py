"""What every long-running process needs: signals and retries, threads that cannot end unnoticed, logs, HTTP."""
