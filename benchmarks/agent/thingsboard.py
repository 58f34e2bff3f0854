"""ThingsBoard Gateway as a contender: its REST connector, with a broker in place of the platform."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.agent import programs
from benchmarks.agent.contenders import Server, serving
from simulators.services import ports
from simulators.services.process import Command, Process

PATH = "/events"
LOG_LEVEL = "WARNING"
"""Of its connector for the speed: at its default it logs lines for each event, which take a third of its CPU."""
STARTED = "Gateway started."
"""In its log, once it sends what it has stored to the platform."""


@contextmanager
def run(folder: Path, platform_port: int) -> Iterator[Server]:
    """Run it with its SQLite storage; it answers 200 before it stores anything."""
    (port,) = ports.free(1)
    with serving(Server(prepared(folder, port, platform_port, LOG_LEVEL), port, port), "") as server:
        server.process.wait_for_port(port)
        yield server


def prepared(folder: Path, port: int, platform_port: int, log_level: str = "INFO") -> Process:
    """Prepare it in a folder, where it writes its data."""
    for each in ("logs", "data", "config"):
        (folder / each).mkdir(parents=True)
    logs = {
        "version": 1,
        "disable_existing_loggers": False,
        "handlers": {"console": {"class": "logging.StreamHandler"}},
        "root": {"level": "WARNING", "handlers": ["console"]},
        "loggers": {"service": {"level": "INFO"}},
    }
    (folder / "config" / "logs.json").write_text(json.dumps(logs))
    (folder / "config" / "tb_gateway.json").write_text(json.dumps(_gateway(platform_port)))
    (folder / "config" / "rest.json").write_text(json.dumps(_connector(port, log_level)))
    main = "from thingsboard_gateway.tb_gateway import main; main()"
    line = (str(programs.thingsboard_python()), "-c", main)
    environment = {"TB_GW_CONFIG_DIR": str(folder / "config")}
    return Process(Command("thingsboard", line, folder / "thingsboard.log", folder, environment))


def _gateway(platform_port: int) -> dict[str, object]:
    return {
        "thingsboard": {
            "host": "127.0.0.1",
            "port": platform_port,
            "remoteConfiguration": False,
            "statistics": {"enable": False},
            "security": {"type": "accessToken", "accessToken": "bench"},
        },
        "storage": {"type": "sqlite", "data_file_path": "./data/", "messages_ttl_in_days": 7},
        "grpc": {"enabled": False},
        "connectors": [{"type": "rest", "name": "REST", "configuration": "rest.json"}],
    }


def _connector(port: int, log_level: str) -> dict[str, object]:
    fields = [{"type": "double", "key": key, "value": f"${{data.{key}}}"} for key in ("temperature", "humidity")]
    converter = {
        "type": "json",
        "deviceNameExpression": "${device}",
        "deviceTypeExpression": "default",
        "attributes": [],
        "timeseries": fields,
    }
    mapping = {
        "endpoint": PATH,
        "HTTPMethods": ["POST"],
        "response": {"responseExpected": False},
        "security": {"type": "anonymous"},
        "converter": converter,
    }
    return {"host": "127.0.0.1", "port": port, "SSL": False, "logLevel": log_level, "mapping": [mapping]}
