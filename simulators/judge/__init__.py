"""Judge a run by its ledger and by the place where its events end."""
