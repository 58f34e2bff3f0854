"""Sensors, bad radios, real parts and a ledger of the truth: what shows that nothing is lost or doubled."""
