"""Authentication and authorization: tokens, TLS."""
