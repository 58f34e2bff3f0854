"""The comparison of Bloom filters with an exact index."""
