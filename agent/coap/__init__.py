"""Receives events over CoAP (RFC 7252): one socket, a fast path for plain POSTs, aiocoap for everything else."""
