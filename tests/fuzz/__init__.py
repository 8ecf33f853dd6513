"""Coverage-guided fuzzing of the functions that take bytes from elsewhere: ``python -m tests.fuzz``."""
