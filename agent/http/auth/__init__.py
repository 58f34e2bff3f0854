"""Who may post and who may read: tokens, TLS."""
