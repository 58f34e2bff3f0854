"""docs/http.md agrees with the server."""

import re
import subprocess
from hashlib import sha256
from pathlib import Path

from agent.forward.kafka.uplink import Uplink
from agent.http.auth.tokens import Role, read_tokens
from agent.http.limits import Limits
from tests.agent.http.serving import EVENT, FINGERPRINT, serving
from tests.agent.store.stores import HandClock
from tests.docs.pages import ROOT, blocks

PAGE = ROOT / "docs" / "http.md"


async def test_the_metrics_of_the_page_are_those_of_the_server(tmp_path: Path) -> None:
    async with serving(tmp_path, uplink=Uplink(1_000, HandClock())) as served:
        heard = await served.client.get("/metrics")
    shown = set(re.findall(r"^# TYPE (\S+)", heard.body.decode(), re.MULTILINE))
    said = set(re.findall(r"^\| `(oncegate_\w+)[{`]", PAGE.read_text(), re.MULTILINE))
    assert said == {name for name in shown if not name.startswith("oncegate_process_")}


async def test_the_paths_of_the_page_are_those_of_the_server(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        heard = await served.client.get("/none")
    said = re.findall(r"^\| `(/\S*)` \|", PAGE.read_text(), re.MULTILINE)
    assert set(said) == set(heard.document["message"].removeprefix("there are ").split(", "))


async def test_the_example_is_answered_as_it_says(tmp_path: Path) -> None:
    example = blocks(PAGE, "sh")[0]
    assert EVENT.decode() in example
    async with serving(tmp_path) as served:
        heard = await served.client.post(EVENT)
    assert heard.body.decode() == blocks(PAGE, "json")[0].strip()
    assert FINGERPRINT in heard.body.decode()


def test_the_token_file_of_the_page_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.touch(mode=0o640)
    file.write_text(blocks(PAGE, "tokens")[0])
    assert len(read_tokens(file)) == len(Role)


def test_the_commands_of_the_page_make_a_token_and_its_hash() -> None:
    script = blocks(PAGE, "sh")[1] + 'printf "%s" "$token"'
    said = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
    digest, token = said.split("  -\n")
    assert sha256(token.encode()).hexdigest() == digest
    assert len(token) == 44


def test_the_limits_of_the_page_are_those_of_the_code() -> None:
    text, limits = " ".join(PAGE.read_text().split()), Limits()
    for sentence in (
        f"{limits.connections_max} concurrent connections",
        f"{limits.requests_in_progress_max} concurrent requests",
        f"head has at most {limits.head_bytes_max >> 10} KiB and must arrive within {limits.head_seconds_max:g} s",
        f"a body within {limits.body_seconds_max:g} s.",
    ):
        assert sentence in text
