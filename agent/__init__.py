"""The agent on the gateway: receive, decode, fingerprint, store, ack, forward, receipt."""
