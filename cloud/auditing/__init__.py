"""The audit, which shares no code with what it audits."""
