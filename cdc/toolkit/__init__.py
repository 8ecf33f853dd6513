"""Commands that can do without a deployment: they look at any topic, or start servers of their own."""
