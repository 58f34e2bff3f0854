"""What the product's modules get in place of threads, clocks, randomness, Kafka's clients and sockets.

Each name of each loaded module of agent and cloud that is one of these values is replaced, and nothing else of them.
"""

import queue
import random
import secrets
import sys
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

PACKAGES = ("agent", "cloud")
VERSION = version("oncegate")
"""Read once, not in each schedule."""
BESIDE = ("tests.simulators.mutants",)
"""Faulty parts of the product, which wait, too."""


def seeded(source: random.Random) -> Any:
    """Return what stands for the class Random: without a seed, one from the schedule's."""
    return lambda *seed: random.Random(*(seed or (source.getrandbits(64),)))


def replace(patch: pytest.MonkeyPatch, replacements: Mapping[Any, Any]) -> None:
    """Replace values, by identity, in all loaded modules of the product."""
    known = places()
    late = {} if len(sys.modules) == known.modules else _places_in(_modules())
    for value, replacement in replacements.items():
        for module, name in (*known.by_identity.get(id(value), ()), *late.get(id(value), ())):
            if getattr(module, name) is value:  # not yet, and no mutant's
                patch.setattr(module, name, replacement)


Places = Mapping[int, Sequence[tuple[ModuleType, str]]]
"""Where a value is, by its identity: modules and names."""


@dataclass(frozen=True)
class _Known:
    modules: int
    """How many were loaded."""
    by_identity: Places


@cache
def places() -> _Known:
    """Return where each value of the product's modules is now.

    Called before the fork, since a look at each value copies the memory that holds it.
    """
    return _Known(len(sys.modules), _places_in(_modules()))


def _places_in(modules: Sequence[ModuleType]) -> Places:
    found: defaultdict[int, list[tuple[ModuleType, str]]] = defaultdict(list)
    for module in modules:
        for name, value in vars(module).items():
            found[id(value)].append((module, name))
    return found


def standard(threads: Any, clock: Any, queues: Any, source: random.Random) -> dict[Any, Any]:
    return {
        threading: threads,
        time: clock,
        time.monotonic: clock.monotonic,
        queue.SimpleQueue: queues,
        random.Random: seeded(source),
        secrets: SimpleNamespace(token_hex=lambda size: source.randbytes(size).hex(), token_bytes=source.randbytes),
        uuid: SimpleNamespace(uuid4=lambda: uuid.UUID(bytes=source.randbytes(16), version=4)),
        version: lambda name: VERSION if name == "oncegate" else version(name),
    }


def _modules() -> list[ModuleType]:
    return [module for name, module in sorted(sys.modules.items()) if name.split(".")[0] in PACKAGES or name in BESIDE]
