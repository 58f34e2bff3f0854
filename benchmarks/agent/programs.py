"""The programs that a run needs and Python is too slow for: compiled, installed, or honestly missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from simulators.parts import cache, debian, programs

HERE = Path(__file__).parent
NATS = "github.com/nats-io/nats-server/v2@v2.12.1"
BUILD_SECONDS_MAX = 900


def folder() -> Path:
    """Give the folder in which compiled programs are kept."""
    kept = cache.folder() / "bench"
    kept.mkdir(parents=True, exist_ok=True)
    return kept


def coap_load() -> Path:
    """Compile the field of sensors."""
    return _compiled("coap_load", "coap_load.c", ())


def slow_sync() -> Path:
    """Compile the slow disk."""
    return _compiled("slow_sync.so", "slow_sync.c", ("-shared", "-fPIC", "-ldl"))


def libcoap_server() -> str | None:
    """Find libcoap's example server."""
    return programs.find("coap-server-notls")


def nats_server() -> Path | None:
    """Build NATS through the Go module proxy; None where there is no Go, or it cannot be built."""
    program = folder() / "nats-server"
    go = shutil.which("go", path=f"{os.environ.get('PATH', os.defpath)}:/usr/local/go/bin")
    if program.exists() or go is None:
        return program if program.exists() else None
    print(f"bench-agent: building {NATS} (once, a minute or two)", flush=True)
    environment = {**os.environ, "GOBIN": str(folder()), "GOFLAGS": "-mod=mod"}
    done = subprocess.run(
        [go, "install", NATS],
        env=environment,
        cwd=folder(),
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_SECONDS_MAX,
    )
    if done.returncode != 0:
        print(f"bench-agent: NATS left out: {done.stderr.strip()[-300:]}", flush=True)
    return program if program.exists() else None


def _compiled(name: str, source: str, options: tuple[str, ...]) -> Path:
    program, text = folder() / name, HERE / source
    if not program.exists() or program.stat().st_mtime < text.stat().st_mtime:
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            raise SystemExit(f"bench-agent: no C compiler; run: {debian.by_hand('gcc', 'libc6-dev')}")
        shared = [option for option in options if not option.startswith("-l")]
        libraries = [option for option in options if option.startswith("-l")]
        subprocess.run([compiler, "-O2", *shared, "-o", str(program), str(text), *libraries], check=True)
    return program
