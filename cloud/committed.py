"""Whether an offset that a group has committed is a receipt of a table, as docs/receipts.md defines it."""

from dataclasses import dataclass

from contract.receipt import parse


@dataclass(frozen=True, slots=True)
class Committed:
    """An offset of a group, with what is committed beside it."""

    offset: int
    leader_epoch: int | None
    metadata: str


def objection(committed: Committed, table: str, topic_id: str) -> str | None:
    """Return why an offset is no receipt of a table's reading of a topic; None where it is one."""
    receipt = parse(committed.metadata)
    if receipt is None:
        return "it was committed by a foreign consumer or by a reset"
    if receipt.topic_id != topic_id:
        return f"it is of topic {receipt.topic_id}, not of {topic_id}"
    if committed.leader_epoch is None:
        return "it has no leader epoch"
    if receipt.table != table:
        return f"it is of table {receipt.table}, not of {table}"
    if receipt.first > committed.offset:
        return f"it begins at {receipt.first}, above itself"
    return None
