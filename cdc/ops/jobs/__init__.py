"""Spark jobs as commands: describe the deployment to a job, start it as a process, hand on its exit code."""
