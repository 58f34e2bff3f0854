"""OSCORE (RFC 8613): security contexts, credentials, sequence numbers."""
