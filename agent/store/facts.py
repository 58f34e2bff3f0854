"""The names of the facts: durable values that the store keeps beside the events, each owned by one module.

Other modules may read them for display.
"""

from typing import Final

RECEIPTS_TABLE: Final = "receipts.table"
"""The id of the table whose receipts count."""
RECEIPTS_HELD: Final = "receipts.held"
"""Since when and why no receipt is followed."""
OVERSIZED: Final = "oversized"
"""The events that Kafka refuses for their size."""
FORWARDER_STOPPED: Final = "forwarder.stopped"
"""Why the forwarder has stopped; empty while it runs."""
IN_DOUBT: Final = "at-most-once"
"""The batches of the mode at-most-once whose outcome is unknown."""
TRANSACTION_INTENT: Final = "transaction.intent"
TRANSACTION_SETTLED: Final = "transaction.settled"
"""The number of the last marker whose transaction has an outcome."""
DUPLICATES_FORGOTTEN: Final = "duplicates.forgotten"
"""How many duplicates were counted of events that have been removed since."""
BYTES_WRITTEN: Final = "written"
"""How many bytes the agent has written since the store was created."""
CLOCK_UNTRUSTED: Final = "clock.untrusted"
"""Which events were accepted under an untrusted clock and are not declared yet."""
SECTION: Final = "section"
"""The state of the hash chain when events of its latest section were purged."""
CHECKPOINTS: Final = "checkpoints"
"""How many events of the gateway begin a section of the hash chain within an epoch."""
MQTT_SESSION: Final = "mqtt.session"
"""The secret name of the session at the MQTT broker, and how often the broker has lost it."""
WRITE_TRIAL: Final = "trial"
"""Written to find out whether the disk accepts a write."""
