"""`oncegate status`: the state of the store, and of the agent if it runs, on one screen."""

import argparse
import json
import time
from dataclasses import replace
from statistics import fmean

from agent import terminal
from agent.cli.api import ApiError, own_api
from agent.config import load
from agent.config.settings import HttpSettings
from agent.status import GatewayStatus, read_status
from agent.store.counts import EventCounts
from agent.store.layout import FILE_NAME
from agent.store.read.flush_request import request_counts
from agent.store.schema import database, disk_space
from agent.telemetry.refusals import RecentRequests
from agent.terminal import Colour, count, duration, paint, printable, size

JSON = "one JSON object"
EXAMPLES = """examples:
  oncegate status
  oncegate status --json | jq .events
  watch -n 2 oncegate status
"""
_LATE_SECONDS = 3_600
"""The age from which an event that is not in the table is highlighted."""


def run(arguments: argparse.Namespace) -> int:
    """Print the status."""
    settings = load.load(arguments.config)
    counts = request_counts(settings.gateway.state_dir)
    requests = RecentRequests.of(counts)
    status = replace(read_status(settings.gateway.state_dir, settings.gateway.id), requests=requests)
    if arguments.json:
        print(json.dumps(status.document()))
        return 0
    path = settings.gateway.state_dir / FILE_NAME
    running = database.in_use(path)
    share = status.store_bytes / settings.store.max_bytes
    late = " (the latest may be missing)" if running and counts is None else ""
    label = f"epoch {status.epoch}, sequence {status.sequence:,}; {count(status.epochs, 'epoch')} so far"
    blocked_log = f"{size(status.log_bytes)}, held by a program that reads the store: end it; fuser -v {path}"
    is_log_blocked = running and status.log_bytes > disk_space.LOG_BYTES_EXPECTED
    forgotten = f"; {count(status.forgotten_early, 'fingerprint')} forgotten before identity.retention"
    maybe_lost = f"{count(status.maybe_lost, 'event')}, in flight when the connection or the agent ended"
    held = f"held for {_age(status.receipts_held_since)}: {status.receipts_held}"
    shown = [
        ("gateway", printable(status.gateway)),
        ("agent", "runs" if running else "does not run; start it: systemctl start oncegate"),
        *(_live(settings.http) if counts is not None and settings.http.enabled else ()),
        ("accepted", f"{count(status.accepted, 'sensor event')} since the store was created"),
        ("", f"{count(status.duplicates, 'duplicate')} recognised{late}, {status.rejected:,} rejected"),
        ("in the store", _states(status.events)),
        *((f"lane {printable(lane)}", _states(events)) for lane, events in status.lanes.items()),
        ("oldest", _oldest(status)),
        ("label", "none yet" if status.epoch is None else label),
        (
            "on disk",
            f"{size(status.store_bytes)}, {share:.0%} of store.max_bytes{forgotten if status.forgotten_early else ''}",
        ),
        ("log", paint(blocked_log, Colour.WARNING) if is_log_blocked else ""),
        ("refused", paint(printable(requests.text()), Colour.WARNING) if requests and requests.refused else ""),
        ("maybe lost", maybe_lost if status.maybe_lost else ""),
        ("mqtt", sessions_lost(status) if status.mqtt_sessions_lost else ""),
        ("too large", _oversized(status) if status.oversized else ""),
        ("receipts", paint(held, Colour.WARNING) if status.receipts_held else ""),
        ("forwarding", f"stopped: {printable(status.forwarding_stopped)}" if status.forwarding_stopped else ""),
    ]
    rows = [row for row in shown if row[1]]
    print(terminal.table(rows, colours=[Colour.FAINT] * len(rows)))
    if not running:
        print(paint("the agent is stopped; sensors keep their events and send them when it runs again", Colour.WARNING))
    return 0


def _live(http: HttpSettings) -> list[tuple[str, str]]:
    """Return the agent's links and its rates of the last minute, or why they are unknown."""
    try:
        api = own_api(http)
        links, past = api.get("/api/v1/live").document["links"], api.get("/api/v1/history").document
    except ApiError as error:
        return [("status page", printable(str(error)))]
    rows = [("status page", f"{api.url}/")]
    for name, link in links.items():
        reason = f": {printable(link['reason'])}" if link["reason"] else ""
        text = f"{link['state']} for {_age(link['since'])}{reason}"
        rows.append((f"link {name}", text if link["up"] else paint(text, Colour.WARNING)))
    if past["accepted"]:
        points = 60 // past["step_seconds"]
        accepted, sent, confirmed = (fmean(past[name][-points:]) for name in ("accepted", "sent", "confirmed"))
        rates = f"{accepted:.1f} events accepted a second, {sent:.1f} sent, {confirmed:.1f} confirmed"
        rows.append(("last minute", rates))
    return rows


def sessions_lost(status: GatewayStatus) -> str:
    """Return how often the MQTT broker has lost the session, and when last."""
    times = count(status.mqtt_sessions_lost, "time")
    return f"the broker lost the agent's session {times}, last {_age(status.mqtt_session_lost_at)} ago"


def _states(events: EventCounts) -> str:
    lost = f", {events.lost:,} lost" if events.lost else ""
    return f"{events.new:,} new, {events.forwarded:,} forwarded, {events.processed:,} processed{lost}"


def _age(timestamp: int | None) -> str:
    return duration(max(0.0, time.time() - (timestamp or 0) / 1000))


def _oversized(status: GatewayStatus) -> str:
    """Return how many events Kafka refuses, and a remedy."""
    waits = f"{count(status.oversized, 'event')} refused by Kafka, the first {_age(status.oversized_since)} ago"
    hint = f"raise max.message.bytes and message.max.bytes above {status.oversized_bytes:,} bytes"
    return paint(f"{waits}; kept for kafka.oversized_after; {hint}", Colour.WARNING)


def _oldest(status: GatewayStatus) -> str:
    """Return how long the oldest event has waited for the table."""
    if status.oldest_unprocessed is None:
        return "no event awaits its receipt"
    seconds = max(0.0, time.time() - status.oldest_unprocessed / 1000)
    text = f"awaits its receipt for {duration(seconds)}"
    return paint(text, Colour.WARNING) if seconds > _LATE_SECONDS else text
