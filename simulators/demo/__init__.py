"""The demo: the whole path on real services, killed in the middle of its work, and held against the truth."""
