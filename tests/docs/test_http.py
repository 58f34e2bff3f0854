"""docs/http.md agrees with the server."""

import re
from pathlib import Path

from agent.forward.kafka.uplink import Uplink
from agent.http.auth.tokens import Role, read_tokens
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
