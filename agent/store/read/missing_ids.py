"""Finds ids that are missing among those of a device that counts its events."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class MissingIds:
    """The ids from first to last, of which no event was found; `boot` is that of the events around them."""

    boot: int | str | None
    first: int
    last: int


def missing_ids(events: Iterable[Mapping[str, object]]) -> list[MissingIds]:
    """Return the ids that are missing between the lowest and the highest one of each boot.

    Ids of which less than half occur are no counter, such as times or random numbers.
    """
    ids: defaultdict[int | str | None, set[int]] = defaultdict(set)
    for event in events:
        id_, boot = event.get("id"), event.get("boot")
        if isinstance(id_, int) and (boot is None or isinstance(boot, int | str)):
            ids[boot].add(id_)
    return [
        MissingIds(boot, before + 1, after - 1)
        for boot, found in ids.items()
        if 2 * len(found) > max(found) - min(found)
        for before, after in pairwise(sorted(found))
        if after > before + 1
    ]
