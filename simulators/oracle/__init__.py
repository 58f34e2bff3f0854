"""The oracle: hold the ledger against what is at the end of the path, event by event.

It never asks the product what an event is. An event is what its sensor said: device, type, id, boot, time, data, as one
canonical text. Between "sent" and "acked" both outcomes are right: once, or not at all.
"""
