"""One scenario and one seed, with one layer after the other taken away: what each of them saves."""
