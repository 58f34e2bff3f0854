"""Judge a run by its ledger and by the sink where its events end."""
