"""Source = folded topic = replica, row by row: the comparison of the demo and of the tests."""
