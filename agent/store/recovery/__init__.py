"""Opening, verifying and salvaging a store."""
