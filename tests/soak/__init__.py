"""Bridge and sink under a mixed load and random faults, for as long as you like, with figures at the end."""
