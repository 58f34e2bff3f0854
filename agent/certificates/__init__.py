"""When the certificates of the gateway's connections expire."""
