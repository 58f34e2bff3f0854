"""The consumers of docs/examples that give receipts, built by their own languages' tools."""

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from urllib.parse import urlencode

from psycopg.conninfo import conninfo_to_dict

from simulators.services.error import ServiceError
from simulators.services.install import jars, programs
from simulators.services.install import java as runtime
from simulators.services.postgres import Postgres

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
BUILD_SECONDS_MAX = 600


@cache
def go() -> tuple[str, ...]:
    """Build the example in Go, and return its command; raise ServiceError without Go."""
    compiler = shutil.which("go", path=f"{os.environ.get('PATH', os.defpath)}:/usr/local/go/bin")
    if compiler is None:
        raise ServiceError("no go; install Go 1.26: https://go.dev/doc/install")
    program = f"{mkdtemp()}/receipts"
    command = [compiler, "build", "-o", program, "."]
    subprocess.run(command, cwd=EXAMPLES / "receipts-go", check=True, timeout=BUILD_SECONDS_MAX)
    return (program,)


@cache
def java() -> tuple[str, ...]:
    """Build the example in Java, and return its command; raise ServiceError without a compiler."""
    compiler = programs.require("javac")
    folder = mkdtemp()
    classpath = ":".join([folder, *map(str, (*jars.paths(jars.STREAMS), *jars.paths(jars.JDBC)))])
    source = EXAMPLES / "receipts-java" / "Receipts.java"
    subprocess.run([compiler, "-cp", classpath, "-d", folder, source], check=True, timeout=BUILD_SECONDS_MAX)
    return (str(runtime.require()), "-Xmx128m", "-XX:+UseSerialGC", "-cp", classpath, "Receipts")


PROGRAMS = {"go": go, "java": java}


def database(server: Postgres, language: str, schema: str) -> str:
    """Return the URL of a schema."""
    given = conninfo_to_dict(server.connection)
    login = urlencode({"user": str(given["user"]), "password": str(given["password"])})
    url = f"postgresql://127.0.0.1:{server.port}/postgres?{login}"
    return f"jdbc:{url}&currentSchema={schema}" if language == "java" else f"{url}&search_path={schema}"
