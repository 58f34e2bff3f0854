"""Restored backups and cloned cards: whichever copy is opened, no label is assigned to two events."""

import shutil
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from contract.event import Event, Label
from tests.agent.store.stores import HandClock, accept, crash_image, make_store, stored_events

STEPS = st.lists(
    st.tuples(st.sampled_from(["serve", "clone", "restore", "backup while serving"]), st.integers(0, 9)), max_size=14
)


class Field:
    """Gateways with a common origin, and every label that any of them has assigned."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folders = [root / "0"]
        self._clock = HandClock()
        self._number = 0
        self.given: dict[Label, bytes] = {}

    async def step(self, what: str, which: int) -> None:
        folder = self._folders[which % len(self._folders)]
        if what == "serve" or not folder.exists():
            await self._serve(folder, None)
        elif what == "backup while serving":
            await self._serve(folder, self._new())
        elif what == "clone":
            shutil.copytree(folder, self._new())
        else:
            older = self._folders[(which + 1) % len(self._folders)]
            if older != folder and older.exists():
                shutil.rmtree(folder)
                shutil.copytree(older, folder)

    async def _serve(self, folder: Path, backup: Path | None) -> None:
        self._clock.pass_seconds(5)
        async with make_store(folder, self._clock, keep_processed_seconds=10**9, segment_events=8) as store:
            for _ in range(3):
                # Two clones receive from the same sensors: equal events, and others.
                self._number += 1
                await accept(store, Event("d", id=self._number % 7), Event("d", data={"n": self._number}))
                if backup is not None:
                    crash_image(folder, backup)
                    backup = None
            for event in stored_events(store):
                assert self.given.setdefault(event.label, event.tail) == event.tail

    def _new(self) -> Path:
        self._folders.append(self._root / str(len(self._folders)))
        return self._folders[-1]


@pytest.mark.guarantee(4)
@given(STEPS)
@example([("serve", 0), ("clone", 0), ("serve", 0), ("serve", 1)])
@example([("serve", 0), ("clone", 0), ("serve", 0), ("restore", 0), ("serve", 0)])
@settings(max_examples=15)
async def test_no_label_is_given_twice_whatever_copies_are_restored_and_cloned(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    field = Field(tmp_path_factory.mktemp("field"))
    for what, which in steps:
        await field.step(what, which)
