"""The page for the person who is on call: one deployment, or several, as they are now and were in the last hours."""
