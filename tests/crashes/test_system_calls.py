"""Each system call of the agent fails once in each way, and the library that does so sees every one of them."""

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from simulators.services.install import programs
from tests.crashes.system_calls import SCENARIOS

PARTS = 48
SECONDS_MAX = 1_800
PATHS = {"pwrite64": "pwrite", "openat": "open"}
_LINE = re.compile(r"(?P<thread>\d+) +(?:(?P<kind>\w+)\((?P<arguments>.*)|(?P<end>\+\+\+ .*)|<\.\.\. .*|--- .*)")

pytestmark = pytest.mark.heavy


def run(*arguments: str, below: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [*below, sys.executable, "-m", "tests.crashes.system_calls", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS_MAX)


@pytest.mark.guarantee(1)
@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("part", range(1, PARTS + 1))
def test_whatever_system_call_fails_no_acked_event_is_lost_and_none_is_doubled(scenario: str, part: int) -> None:
    done = run("--scenario", scenario, "--part", f"{part}/{PARTS}")
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    outcomes = json.loads(done.stdout)[scenario]["outcomes"]
    assert sum(outcomes["whole"].values()) > sum(sum(counts.values()) for counts in outcomes.values()) / 2


@pytest.mark.guarantee(1)
@pytest.mark.parametrize(
    ("mutant", "chosen"),
    [
        ("ack_before_commit", ("--object", "events.db-wal", "--call", "pwrite", "--part", "9/60")),
        ("errors_of_commits_ignored", ("--object", "events.db-wal", "--call", "fdatasync", "--part", "2/4")),
    ],
)
def test_a_mutant_is_revealed(mutant: str, chosen: tuple[str, ...]) -> None:
    done = run("--scenario", "killed", "--mutant", mutant, *chosen)
    print(done.stdout, done.stderr)
    assert done.returncode == 1
    assert "is acked and not there" in done.stderr


@pytest.mark.guarantee(1)
def test_the_library_counts_every_call_that_strace_sees(tmp_path: Path) -> None:
    traced = tmp_path / "strace.txt"
    kinds = "write,pwrite64,writev,pwritev,sendto,sendmsg,sendmmsg,fsync,fdatasync,sync_file_range,syncfs"
    kinds += ",truncate,ftruncate,fallocate,rename,renameat,renameat2,unlink,unlinkat,link,linkat,mkdir,mkdirat,openat"
    strace = (programs.require("strace"), "-f", "-q", "-y", "-s", "0", "-e", f"trace={kinds}", "-o", str(traced))
    done = run("--scenario", "new", "--part", "1/1", "--object", "none", below=strace)
    counted = Counter[str]()
    for call, count in json.loads(done.stdout)["new"]["calls"].items():
        counted[call.split()[0]] += count
    seen = Counter(calls_of_first_agent(traced.read_text()))
    assert seen == counted


def calls_of_first_agent(text: str) -> Iterator[str]:
    """Yield the calls of the process that writes the calls' log, from the opening of that to its end."""
    lines = [match for match in map(_LINE.fullmatch, text.splitlines()) if match is not None]
    opens = (at for at, line in enumerate(lines) if line["kind"] == "openat" and "calls.log" in line["arguments"])
    start = next(opens)
    agent = lines[start]["thread"]
    runner = next(line["thread"] for line in lines if "oncegate.toml" in (line["arguments"] or ""))
    for line in lines[start + 1 :]:
        if line["end"] and line["thread"] == agent:
            return
        if line["kind"] and line["thread"] != runner and changes_something(line["kind"], line["arguments"]):
            yield PATHS.get(line["kind"], line["kind"])


def changes_something(kind: str, arguments: str) -> bool:
    """Whether a call writes or sends; the C library's questions to the kernel about its addresses do not."""
    if kind == "openat":
        return re.search("O_WRONLY|O_RDWR", arguments) is not None
    return "calls.log" not in arguments and "AF_NETLINK" not in arguments
