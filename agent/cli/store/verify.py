"""`oncegate verify`: check the whole store for damage."""

import argparse
import json
from dataclasses import asdict

from agent.cli.failures import FAILURE
from agent.config import load
from agent.store.files.folders import store_folders
from agent.store.layout import FILE_NAME
from agent.store.recovery.verify import verify
from agent.terminal import printable

JSON = "one JSON object for each lane"
EXAMPLES = """examples:
  oncegate verify
  oncegate verify --json | jq .findings
"""


def run(arguments: argparse.Namespace) -> int:
    """Print the findings, a line each; return 1 where there are any."""
    is_whole = True
    for folder in store_folders(load.load(arguments.config).gateway.state_dir).values():
        path, result = folder / FILE_NAME, verify(folder / FILE_NAME)
        is_whole &= not result.findings
        if arguments.json:
            print(json.dumps({"store": str(path), "whole": not result.findings, **asdict(result)}))
            continue
        for finding in result.findings:
            print(f"{finding.check}: {printable(finding.text)}")
        print(f"{path}: {result.events} events are whole; {len(result.findings) or 'no'} findings")
    return 0 if is_whole else FAILURE
