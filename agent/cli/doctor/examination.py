"""Runs all checks, one after the other."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from pkgutil import resolve_name

from agent.cli.doctor import files, machine
from agent.cli.doctor.finding import Finding, fine, warning, wrong
from agent.clock import SystemClock
from agent.config import ways
from agent.config.load import parts_of
from agent.config.settings import Settings
from agent.forward.errors import KafkaSettingsError
from agent.status import GatewayStatus, read_status, read_store
from agent.store.errors import StoreError
from agent.store.files import swap, use_mark
from agent.store.files.folders import foreign_folders, lane_folders, store_folders
from agent.store.layout import FILE_NAME
from agent.store.read.flush_request import request_counts
from agent.store.schema import database
from agent.telemetry.refusals import RecentRequests

Check = Callable[[], Iterator[Finding]]


def examine(settings: Settings, configuration: Path | None = None) -> Iterator[Finding]:
    """Run all checks of the settings; yield findings as they are made.

    A check that this user may not make is a warning, settings that Kafka's client refuses are wrong, and all other
    checks are made.
    """
    for name, check in _checks(settings, configuration):
        try:
            yield from check()
        except PermissionError as error:
            text = f"not checked: {error.filename}: {error.strerror}"
            yield warning(name, text, "sudo oncegate doctor")
        except (StoreError, sqlite3.Error):  # reported by the check `store`
            continue
        except KafkaSettingsError as error:
            yield wrong(name, str(error), "correct the configuration: oncegate check")


def _checks(settings: Settings, configuration: Path | None) -> Iterator[tuple[str, Check]]:
    clock = SystemClock()
    folder, lanes = settings.gateway.state_dir, len(settings.forward.lanes)
    yield "clock", lambda: machine.check_clock(clock, settings.gateway)
    yield "python", machine.check_python
    yield "sqlite", machine.check_sqlite
    yield "mount", lambda: machine.check_mount(folder)
    yield "space", lambda: machine.check_store_bound(settings.store, lanes)
    yield "space", lambda: machine.check_space(folder, settings.store)
    yield "memory", lambda: machine.check_memory(settings.identity, lanes)
    yield "fingerprints", lambda: machine.check_fingerprints(folder, settings.store, settings.identity, lanes)
    yield "wear", lambda: machine.check_wear(folder)
    yield "store", lambda: _check_stores(folder)
    yield "files", lambda: files.check_files(parts_of(settings))
    yield "secrets", lambda: files.check_secrets(settings, configuration)
    if settings.coap.enabled and settings.coap_oscore.credentials_dir is not None:
        yield "oscore", lambda: files.check_oscore(settings)
    yield "requests", lambda: _check_requests(folder)
    yield "ports", lambda: machine.check_ports(settings)
    yield "certificates", lambda: machine.check_certificates(settings, clock.wall_ms())
    yield "kafka", lambda: _check_kafka(settings, clock.wall_ms())
    for name, way in ways.enabled(settings).items():
        if way.doctor:
            yield name, lambda way=way: resolve_name(way.doctor)(settings, clock.wall_ms())  # type: ignore[misc]


def _check_stores(state_folder: Path) -> Iterator[Finding]:
    for folder in store_folders(state_folder).values():
        yield from _check_store(folder / FILE_NAME)
    for folder in foreign_folders(state_folder):
        yield warning("store", f"{folder}: not used, since no lane can have this name", "see docs/lanes.md")


def _check_store(path: Path) -> Iterator[Finding]:
    runs = "the agent runs" if database.in_use(path) else "the agent does not run"
    damaged = sorted(swap.damaged_files(path)) if path.parent.exists() else []
    if reason := _unreadable(path):
        yield wrong("store", f"{path}: {reason}; {runs}", "see oncegate verify; the agent salvages it when it starts")
    elif blocking := [folder for folder in path.parents if folder.exists() and not folder.is_dir()]:
        yield wrong("store", f"{blocking[0]} is a file", "choose a folder as gateway.state_dir")
    elif not path.exists():
        yield warning("store", f"{path}: there is none yet", "systemctl start oncegate")
    elif damaged:
        yield warning("store", f"{runs}; a damaged file was set aside: {damaged[-1].name}", "see docs/operations.md")
    else:
        yield fine("store", f"{path}; {runs}")


def _check_requests(folder: Path) -> Iterator[Finding]:
    """Report the requests of sensors that the running agent has refused lately."""
    requests = RecentRequests.of(request_counts(folder))
    if requests is None:
        return
    if not requests.refused:
        yield fine("requests", requests.text())
        return
    finding = wrong if requests.refused == requests.requests else warning
    yield finding("requests", requests.text(), "correct the sensors: docs/sensors.md lists what each answer means")


def _unreadable(path: Path) -> str:
    """Return why a store cannot be read; empty where it can, or where there is none."""
    try:
        if path.exists() or use_mark.lacks_file(path):
            read_store(path.parent, "")
    except (StoreError, sqlite3.Error) as error:
        return str(error)
    return ""


def _check_kafka(settings: Settings, now: int) -> Iterator[Finding]:
    from agent.cli.doctor import kafka, receipts, rights

    connection = kafka.KafkaConnection.open(settings.kafka)
    finding, topic = kafka.check_broker(connection)
    yield finding
    if topic is not None:
        yield from kafka.check_rights(topic)
        lanes, runs = _lanes(settings), True
        with suppress(PermissionError):  # reported by the check `store`: then it may run
            runs = database.in_use(settings.gateway.state_dir / FILE_NAME)
        yield from rights.check_transactional_ids(connection, settings.gateway.id, lanes, agent_runs=runs)
        yield from kafka.check_topic(connection, topic)
        yield from machine.check_threads(kafka.count_brokers(connection), len(lanes))
        partitions, status = len(topic.partitions), _status(settings)
        yield from kafka.check_stopped(status)
        yield from kafka.check_oversized(settings.kafka, status)
        yield from receipts.check_receipts(connection, settings.receipts, partitions, status, now)
        yield from rights.check_excess(connection, topic, settings.receipts.group, settings.gateway.id, lanes)


def _lanes(settings: Settings) -> list[str]:
    """Return the lanes beside the default one, configured or left with a store, each once."""
    configured = [lane.name for lane in settings.forward.lanes]
    try:
        return list(dict.fromkeys([*configured, *lane_folders(settings.gateway.state_dir)]))
    except PermissionError:  # reported by the check `store`
        return configured


def _status(settings: Settings) -> GatewayStatus | None:
    try:
        return read_status(settings.gateway.state_dir, settings.gateway.id)
    except (StoreError, sqlite3.Error, PermissionError):  # reported by the check `store`
        return None
