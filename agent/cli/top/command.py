"""`oncegate top`: the running agent, live in the terminal."""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path

from agent.cli.api import AgentUnreachableError, Api, ApiError, own_api, read_token
from agent.cli.arguments import seconds
from agent.cli.failures import CommandError
from agent.cli.top.figures import Sample, between, sample
from agent.cli.top.frame import frame
from agent.cli.top.screen import Screen
from agent.config import load
from agent.terminal import json_line, paint

JSON = "one JSON object for each interval"
EXAMPLES = """examples:
  oncegate top
  oncegate top --interval 10
  oncegate top --once
  oncegate top --json | jq '{accepted, new, forwarded}'
  oncegate top --url https://gateway.local:8580 --token-file reader.token

The figures are those of the agent's own metrics and status page, requested over HTTP on this machine. q or Ctrl-C ends
the view. Into a pipe, one frame is written.
"""
INTERVAL_SECONDS = 2.0
_QUIT = ("q", "Q", "\x03", "\x1b")
_COLUMNS, _ROWS = 80, 24


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument(
        "--interval", type=seconds, default=INTERVAL_SECONDS, metavar="SECONDS", help="between two frames (default: 2)"
    )
    parser.add_argument("--once", action="store_true", help="write one frame, of one interval, and end")
    parser.add_argument("--url", metavar="URL", help="another agent (default: that of the configuration)")
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="file with the token of a reader, mode 600")


def run(arguments: argparse.Namespace) -> int:
    """Show the figures until the user ends the view."""
    try:
        token = read_token(arguments.token_file)
        api = Api(arguments.url, token) if arguments.url else own_api(load.load(arguments.config).http, token)
        first = sample(api)
    except AgentUnreachableError as error:
        raise CommandError(f"the agent does not answer: {error}; see systemctl status oncegate") from error
    try:
        screen = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        if arguments.json or arguments.once or not screen:
            return _write(arguments, api, first)
        _show(arguments.interval, api, first)
    except KeyboardInterrupt:
        return 0
    return 0


def _write(arguments: argparse.Namespace, api: Api, before: Sample) -> int:
    """Write frames or JSON objects, without a screen."""
    while True:
        time.sleep(arguments.interval)
        after = sample(api)
        figures = between(before, after)
        if arguments.json:
            print(json_line(asdict(figures)), flush=True)
        else:
            lines = frame(figures, _COLUMNS, _ROWS, api.url)
            print("\n".join(paint(text, colour).rstrip() if colour else text.rstrip() for text, colour in lines))
        if arguments.once or not arguments.json:
            return 0
        before = after


def _show(interval: float, api: Api, first: Sample) -> None:
    """Draw frames until q is pressed."""
    with Screen() as screen:
        before, figures, trouble = first, between(first, first), ""
        note = f"q quits  every {interval:g} s  {api.url}"
        while True:
            screen.draw(frame(figures, *screen.size, note, trouble))
            due = (time.monotonic() if trouble else before.at) + interval
            if screen.wait(due - time.monotonic()) in _QUIT:
                return
            if time.monotonic() < due:
                continue
            try:
                after = sample(api)
            except ApiError as error:
                trouble = trouble or f"agent not responding since {time.strftime('%H:%M:%S')}: {error}"
            else:
                before, figures, trouble = after, between(before, after), ""
