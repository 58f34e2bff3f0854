"""What each layer of dedup contributes: the same field test in each delivery mode, and without dedup."""
