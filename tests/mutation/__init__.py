"""Changes the code that decides about rows, one expression at a time, and counts the changes that no test notices."""
