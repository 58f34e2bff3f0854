"""Everything that writes to the store, put together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from agent.clock import Clock
from agent.config.settings import StoreSettings
from agent.store.files.use_mark import UseMark
from agent.store.memory import Memory
from agent.store.schema import database
from agent.store.transports import Transports
from agent.store.write.capacity import Capacity
from agent.store.write.connection import WritingConnection
from agent.store.write.duplicate_counter import DuplicateCounter
from agent.store.write.epoch import CurrentEpoch
from agent.store.write.forgetting import Forgetting
from agent.store.write.removal import Removal
from agent.store.write.service_clock import ServiceClock
from agent.store.write.transaction import Transactions


@dataclass(frozen=True, slots=True)
class WritePath:
    """The parts that write, from the connection up; all but `epoch.name` are for the writer's thread alone."""

    service: ServiceClock
    epoch: CurrentEpoch
    connection: WritingConnection
    capacity: Capacity
    duplicates: DuplicateCounter
    transactions: Transactions
    forgetting: Forgetting
    removal: Removal

    @classmethod
    def build(
        cls,
        path: Path,
        connect: database.Connect,
        settings: StoreSettings,
        clock: Clock,
        memory: Memory,
        transports: Transports,
        report_damage: Callable[[BaseException], None],
    ) -> Self:
        """Return the parts of a store whose memory is loaded; `connection.start` begins service."""
        service = ServiceClock(clock, memory.service_ms)
        epoch = CurrentEpoch(clock, service)
        connection = WritingConnection(path, connect, memory, epoch, UseMark(path, clock.boot()))
        capacity = Capacity(path, settings, memory, connection.get)
        duplicates = DuplicateCounter(transports.duplicates)
        transactions = Transactions(connection, memory, service, capacity, duplicates, report_damage)
        forgetting = Forgetting(connection.get, transactions, capacity, memory)
        removal = Removal(transactions, capacity, memory, forgetting, transports.forget_answers)
        return cls(service, epoch, connection, capacity, duplicates, transactions, forgetting, removal)
