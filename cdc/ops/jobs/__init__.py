"""Spark jobs as commands: describe the deployment to a job, run the job as a process, return its exit code."""
