"""A topic's values, read by the reconciler's own code: a checker that shares the bridge's encoder shares its bugs."""
