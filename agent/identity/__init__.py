"""Identity: fingerprint, similarity key, the operator's rules, warnings."""
