"""Fuzz one target by coverage with atheris, which is libFuzzer: `python -m tests.fuzz decode --seconds 60`."""

import argparse
import sys
from pathlib import Path

import atheris  # type: ignore[import-not-found,import-untyped,unused-ignore]

with atheris.instrument_imports(include=["agent", "contract", "cbor2", "aiocoap"]):
    from tests.fuzz.targets import TARGETS

CORPUS = Path(__file__).with_name("corpus")


def main() -> None:
    """Fuzz until the time is over, a law is broken, or an exception is raised; the process then ends."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seconds", type=int, default=60, help="default: %(default)s")
    parser.add_argument("--found", type=Path, default=Path("build/fuzz"), help="gets new inputs, and what failed")
    options = parser.parse_args()
    found = options.found / options.target
    found.mkdir(parents=True, exist_ok=True)
    limits = (f"-max_total_time={options.seconds}", "-max_len=1024", "-timeout=20", f"-artifact_prefix={found}/failed-")
    folders = (str(found), str(CORPUS / options.target))
    atheris.Setup([sys.argv[0], *limits, *folders], TARGETS[options.target])
    atheris.Fuzz()


main()
