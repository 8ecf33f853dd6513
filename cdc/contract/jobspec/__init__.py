"""What a Spark job is told, and what it has in common with the command that starts it; knows no Spark."""
