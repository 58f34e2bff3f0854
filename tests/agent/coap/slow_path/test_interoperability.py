"""The client of another project: libcoap's."""

import asyncio
import re
import shutil

import pytest

from agent.coap.tuning import Tuning
from tests.agent.coap.serving import serving
from tests.agent.recorder import Recorder

COAP_CLIENT = next(filter(None, map(shutil.which, ("coap-client-notls", "coap-client", "coap-client-gnutls"))), None)
needs_libcoap = pytest.mark.skipif(COAP_CLIENT is None, reason="libcoap's client is missing: Debian's libcoap3-bin")
SOON = Tuning(empty_ack_seconds=0.02)
LONG = '{"data":{"text":"' + "x" * 1_000 + '"}}'


async def libcoap(port: int, *arguments: str) -> str:
    """Run the client; return its log, which shows each message."""
    process = await asyncio.create_subprocess_exec(
        str(COAP_CLIENT),
        *("-v", "7", "-B", "20", *arguments, f"coap://[::1]:{port}/e"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return output.decode()


@needs_libcoap
@pytest.mark.parametrize("size", [16, 64, 1_024])
async def test_libcoap_uploads_in_blocks(size: int, recorder: Recorder) -> None:
    async with serving(recorder) as server:
        log = await libcoap(server.port, "-b", str(size), "-m", "post", "-t", "50", "-e", LONG)
    assert [delivery.body for delivery in recorder.deliveries] == [LONG.encode()], log


@needs_libcoap
async def test_libcoap_takes_a_separate_response() -> None:
    recorder = Recorder(answer=None)
    async with serving(recorder, SOON) as server:
        asking = asyncio.create_task(libcoap(server.port, "-m", "post", "-t", "50", "-e", "{}"))
        await recorder.received(1)
        asyncio.get_running_loop().call_later(0.1, recorder.respond)
        log = await asking
    assert re.search(r"^v:1 t:CON,? c:2\.04", log, re.MULTILINE), log
