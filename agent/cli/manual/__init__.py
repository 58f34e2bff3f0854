"""Manual pages and completion scripts, generated from the parsers of the commands."""
