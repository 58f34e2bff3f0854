"""The programs that a run needs for speed or comparison: compiled, installed, or reported as missing."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from hashlib import blake2b
from pathlib import Path

from cloud.jars import download
from simulators.services.install import debian, programs

HERE = Path(__file__).parent
NATS = "github.com/nats-io/nats-server/v2@v2.15.2"
TELEGRAF = "github.com/influxdata/telegraf/cmd/telegraf@v1.37.2"
TELEGRAF_PARTS = (
    "custom",
    "inputs.mqtt_consumer",
    "inputs.socket_listener",
    "outputs.file",
    "outputs.kafka",
    "parsers.value",
    "serializers.influx",
)
"""Plugins: from a broker to a file for bench-agent, from a socket to Kafka for bench-store."""
THINGSBOARD = ("thingsboard-gateway==3.8.5", "aiohttp==3.14.5")
"""Its REST connector would otherwise install the second one at its first start."""
BUILD_SECONDS_MAX = 1_800


def folder() -> Path:
    """Return the cache folder of compiled programs."""
    kept = download.cache_folder() / "bench"
    kept.mkdir(parents=True, exist_ok=True)
    return kept


def load() -> Path:
    """Compile the clients of all protocols but MQTT."""
    return _compiled("load", "load.c", ("-D_GNU_SOURCE",))


def slow_sync() -> Path:
    """Compile the library that slows the disk down."""
    return _compiled("slow_sync.so", "slow_sync.c", ("-shared", "-fPIC", "-ldl"))


def libcoap_server() -> str | None:
    """Return the path of libcoap's example server."""
    return programs.find("coap-server-notls")


def nats_server() -> Path | None:
    """Build NATS; return None where that is not possible."""
    return _built("nats-server", NATS)


def telegraf() -> Path | None:
    """Build Telegraf with the plugins that the benchmarks use; return None where that is not possible."""
    return _built("telegraf", TELEGRAF, ",".join(TELEGRAF_PARTS))


def thingsboard_python() -> Path | None:
    """Install ThingsBoard Gateway into an environment of its own; return its Python, or None on failure."""
    place = folder() / "thingsboard"
    python = place / "bin" / "python"
    steps = ([sys.executable, "-m", "venv", "--clear", str(place)], [str(python), "-m", "pip", "install", *THINGSBOARD])
    return python if _once("thingsboard", " and ".join(THINGSBOARD), *steps) else None


def _built(name: str, module: str, tags: str = "") -> Path | None:
    """Build a program through the Go module proxy; return None where that is not possible."""
    go = shutil.which("go", path=f"{os.environ.get('PATH', os.defpath)}:/usr/local/go/bin")
    step = [go or "go", "install", "-ldflags", "-s -w", "-tags", tags, module]
    return folder() / name if _once(name, f"{module} {tags}", step) else None


def _once(name: str, of: str, *steps: list[str]) -> bool:
    """Run the steps that install a program, once for what it is made of; print the reason of a failure."""
    built = folder() / f"{name}.built"
    if built.exists() and built.read_text() == f"{of}\n":
        return True
    print(f"bench: installing {of} (once, some minutes)", flush=True)
    environment = {**os.environ, "GOBIN": str(folder()), "GOFLAGS": "-mod=mod"}
    try:
        for step in steps:
            subprocess.run(
                step,
                env=environment,
                cwd=folder(),
                capture_output=True,
                text=True,
                check=True,
                timeout=BUILD_SECONDS_MAX,
            )
    except (OSError, subprocess.SubprocessError) as error:
        reason = str(getattr(error, "stderr", None) or error).strip()[-300:]
        print(f"bench: {name} left out: not installable here: {reason}", flush=True)
        return False
    built.write_text(f"{of}\n")
    return True


def _compiled(name: str, source: str, options: tuple[str, ...]) -> Path:
    program, text = folder() / name, HERE / source
    if not program.exists() or program.stat().st_mtime < text.stat().st_mtime:
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            raise SystemExit(f"bench-agent: no C compiler; run: {debian.by_hand('gcc', 'libc6-dev')}")
        # Libraries have to follow the source that needs them.
        subprocess.run([compiler, "-O2", "-o", str(program), str(text), *options], check=True)
    return program


ROOT = Path(__file__).resolve().parents[2]
_SOURCES = ("agent", "contract", "setup.py", "pyproject.toml")


def compiled() -> Path:
    """Return the interpreter of this checkout compiled, as packages contain it; built once for these sources."""
    place = folder() / "compiled" / _digest()
    python = place / "environment" / "bin" / "python"
    if not (place / "built").exists():
        print("bench-agent: compiling the agent (once for these sources, some minutes)", flush=True)
        _install(_wheel(place), place / "environment", python)
        (place / "built").touch()
    packages = next((place / "environment").glob("lib/python3*/site-packages"))
    # Last in the path, so that benchmarks and simulators are found here, and the agent where it is compiled.
    (packages / "zz-checkout.pth").write_text(f"{ROOT}\n")
    if Path(sys.prefix) != python.parent.parent:
        # Also where another checkout of these sources built it, whose environment may be gone. A folder named in a
        # .pth file is searched, but its own .pth files, such as the checkout's, are not read.
        (packages / "requirements.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def run_compiled(module: str) -> None:
    """Run this program again in the environment of the compiled form, unless it runs there already."""
    python = compiled()
    if Path(sys.prefix) != python.parent.parent:
        # Without the working directory, in which the sources would be found before the compiled form.
        os.execve(python, [str(python), "-m", module, *sys.argv[1:]], {**os.environ, "PYTHONSAFEPATH": "1"})


def _digest() -> str:
    digest = blake2b(sys.version.encode(), digest_size=8)
    for name in _SOURCES:
        path = ROOT / name
        for file in [path] if path.is_file() else sorted(path.rglob("*.[pc]*")):
            if file.suffix in (".py", ".c", ".toml"):
                digest.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes())
    return digest.hexdigest()


def _wheel(folder: Path) -> Path:
    done = subprocess.run(
        [str(ROOT / "packaging" / "wheel.sh"), str(folder)],
        env={**os.environ, "PIP": f"{sys.executable} -m pip", "ONCEGATE_COMPILE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_SECONDS_MAX,
    )
    if done.returncode:
        raise SystemExit(f"bench-agent: the agent cannot be compiled: {done.stderr.strip()[-500:]}")
    return Path(done.stdout.split()[-1])


def _install(wheel: Path, environment: Path, python: Path) -> None:
    """Install a wheel, without its requirements, into an environment of its own."""
    venv.create(environment, clear=True, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, str(wheel)], check=True)
