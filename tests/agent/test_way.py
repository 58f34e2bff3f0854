"""How far an event goes: the calls, and the files among which they move, from a POST to its ACK."""

import sys
import threading
from collections import Counter
from itertools import pairwise
from pathlib import Path
from types import FrameType

import pytest

from agent import release
from agent.clock import SystemClock
from agent.coap.server import CoapServer
from agent.config.settings import CoapSettings, IdentitySettings
from agent.pipeline import Pipeline
from agent.store.write.maintenance import Maintenance
from tests.agent.coap.sensor import CHANGED, Sensor, post
from tests.agent.store.stores import make_store
from tests.docs.pages import ROOT

CALLS_MAX = 200
FILES_MAX = 45


class Way:
    """The calls of the product's own functions, in their order.

    Without those of the maintenance, which the writer does before each event and after it; `whole` has them, too.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.whole: list[tuple[str, str]] = []
        self._maintaining: set[int] = set()

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        code, thread = frame.f_code, threading.get_ident()
        if code is Maintenance.run_due.__code__ and event in ("call", "return"):
            (self._maintaining.add if event == "call" else self._maintaining.discard)(thread)
        if event == "call":
            file = Path(code.co_filename)
            if file.is_relative_to(ROOT / "agent") or file.is_relative_to(ROOT / "contract"):
                self.whole.append((str(file.relative_to(ROOT)), code.co_qualname))
                if thread not in self._maintaining:
                    self.calls.append(self.whole[-1])


@pytest.mark.skipif(release.form() != "pure", reason="the calls of compiled functions are not seen")
async def test_an_event_passes_few_files_on_its_way_to_its_ack(tmp_path: Path) -> None:
    way, clock, previous = Way(), SystemClock(trusted=True), sys.getprofile()
    ways: list[list[tuple[str, str]]] = []
    wholes: list[list[tuple[str, str]]] = []
    threading.setprofile(way)
    try:
        async with make_store(tmp_path, clock) as store:
            pipeline = Pipeline(IdentitySettings(), clock, store)
            settings = CoapSettings(bind="127.0.0.1:0")
            server = CoapServer(settings, pipeline.receive, now=pipeline.trusted_time, refuse=pipeline.refuse)
            async with server:
                sys.setprofile(way)
                with Sensor(server.port, "127.0.0.1") as sensor:
                    for number in range(8):
                        datagram = post(number, payload=b"\xa2\x62id%c\x64data\xa1\x61x\x01" % number)
                        await store.barrier()
                        way.calls, way.whole = [], []
                        sensor.send(datagram)
                        assert (await sensor.receive()).code == CHANGED
                        ways.append(way.calls[:])
                        wholes.append(way.whole[:])
    finally:
        threading.setprofile(None)
        sys.setprofile(previous)
    calls = min(ways[3:], key=len)  # without what else a thread did meanwhile
    files = Counter(file for file, _ in calls)
    moves = sum(before != after for (before, _), (after, _) in pairwise(calls))
    print(f"calls={len(calls)} files={len(files)} moves={moves}")
    for whole in (min(wholes[3:], key=len), max(wholes, key=len)):
        print(f"with the maintenance: calls={len(whole)} files={len({file for file, _ in whole})}")
    print(*(f"{file}:{name}" for file, name in calls), sep="\n")
    assert len(calls) <= CALLS_MAX
    assert len(files) <= FILES_MAX
