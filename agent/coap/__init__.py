"""The CoAP way in (RFC 7252): one socket, a fast path for the ordinary POST, aiocoap for all else."""
