"""The consumer without Spark."""
