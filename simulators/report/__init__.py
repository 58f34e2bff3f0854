"""The report of a field test: one HTML file that needs nothing else."""
