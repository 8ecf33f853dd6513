"""In which order changes become records, and what decides about them. Pure: it asks, and never calls."""
