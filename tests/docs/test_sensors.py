"""The examples for firmware developers agree with the gateway."""

import argparse
import json
import re
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest

from agent.cli.sensor import fingerprint as fingerprint_command
from agent.decode import decode
from agent.delivery import Delivery, Media
from contract.fingerprint import fingerprint
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "sensors.md").read_text()
EXAMPLE = re.compile(r"^```(json|cbor|senml|query)\n(.*?)^```\n\nFingerprints?: ([^\n]+)$", re.DOTALL | re.MULTILINE)
EXAMPLES = [(kind, text, re.findall(r"`(.+?)`", prints)) for kind, text, prints in EXAMPLE.findall(PAGE)]


def by_command(body: bytes, file: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    parser = argparse.ArgumentParser()
    fingerprint_command.add_arguments(parser)
    file.write_bytes(body)
    assert fingerprint_command.run(parser.parse_args([str(file)])) == 0
    return capsys.readouterr().out.split()


def by_delivery(body: str, media: Media, query: str = "") -> list[str]:
    words = dict(parse_qsl(urlsplit(query).query))
    decoded = decode(Delivery(body.encode(), media, "coap", "coap://[::1]", query=words))
    assert not decoded.rejected
    return [fingerprint(event).hex() for event in decoded.events]


@pytest.mark.parametrize(("kind", "text", "prints"), EXAMPLES)
def test_an_example_has_the_fingerprint_that_stands_below_it(
    kind: str, text: str, prints: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    match kind:
        case "json":
            found = by_command(text.encode(), tmp_path / "event", capsys)
        case "cbor":
            found = by_command(bytes.fromhex(text), tmp_path / "event", capsys)
        case "senml":
            found = by_delivery(text, Media.SENML_JSON)
        case _:
            query, _, body = text.partition("\n")
            found = by_delivery(body, Media.JSON, query)
    assert found == prints


def test_every_example_is_tried_and_is_taken_as_it_stands() -> None:
    assert len(EXAMPLES) == len(re.findall(r"^```\w", PAGE, re.MULTILINE))
    for kind, text, _ in EXAMPLES:
        if kind == "json":
            decoded = decode(Delivery(json.dumps(json.loads(text)).encode(), Media.JSON, "coap", "coap://[::1]"))
            assert decoded.events
            assert not decoded.rejected
