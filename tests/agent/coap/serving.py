"""A server for a test: the real one, on a free port."""

from random import Random

import pytest

from agent.coap.exchange import Now
from agent.coap.oscore.serving import OscoreServing
from agent.coap.server import CoapServer
from agent.coap.tuning import Tuning
from agent.config.settings import CoapSettings
from tests.agent.recorder import Recorder

BODY_BYTES_MAX = 4_096
GENEROUS = Tuning(slow_per_second=1e9, protected_per_second=1e9)
both_paths = pytest.mark.parametrize("fast", [True, False], ids=["fast", "aiocoap"])


def serving(
    recorder: Recorder,
    tuning: Tuning | None = None,
    bind: str = "[::]:0",
    fast: bool = True,
    body_bytes_max: int = BODY_BYTES_MAX,
    oscore: OscoreServing | None = None,
    now: Now = lambda: None,
) -> CoapServer:
    settings = CoapSettings(bind=bind, max_body_bytes=body_bytes_max)
    return CoapServer(settings, recorder, tuning=tuning, random=Random(1), fast=fast, oscore=oscore, now=now)
