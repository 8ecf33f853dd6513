"""Source table against topic, and replica, at one exact snapshot."""
