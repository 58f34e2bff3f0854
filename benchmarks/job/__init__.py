"""The job alone: how its cost grows with the state, with late traffic, with the rate and with its table's log."""
