"""The audit, which shares no code with the audited job (decision 21)."""
