"""Compares what a field test has seen of each device with the model of the path."""
