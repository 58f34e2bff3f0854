"""Bad radios and bad lines: a UDP and a TCP proxy that play the same faults in front of any target."""
