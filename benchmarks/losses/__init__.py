"""What Oncegate and its alternatives lose and duplicate under the same faults."""
