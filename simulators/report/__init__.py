"""The report of a field test: one self-contained HTML file."""
