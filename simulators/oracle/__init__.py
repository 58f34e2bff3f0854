"""The oracle: compares the ledger with the evidence at the end of the path, event by event.

It uses no code of the product. An event is identified by what its sensor reported: device, type, id, boot, time, data,
as one canonical text. An event that was sent and not acked may be stored once or not at all.
"""
