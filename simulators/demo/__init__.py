"""The demo: the whole path on real parts, killed in the middle of its work, and held against the truth."""
