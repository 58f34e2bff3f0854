"""The index of fingerprints."""
