"""The demo: the whole path on real services, killed at random, and compared with the ledger."""
