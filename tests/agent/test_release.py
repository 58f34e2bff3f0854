"""The release that runs is named alike by the command, the status, the metrics, the page's data and the log."""

import subprocess
import sys
from importlib.machinery import ExtensionFileLoader
from importlib.metadata import version
from pathlib import Path

from agent import release
from contract import fingerprint
from tests.agent.http.serving import serving
from tests.support.agent_process import agent_process, configured

VERSION = version("oncegate")


def test_the_form_is_that_of_the_loaded_module() -> None:
    compiled = isinstance(fingerprint.__loader__, ExtensionFileLoader)
    assert release.form() == ("compiled" if compiled else "pure")


def test_the_command_prints_version_and_form() -> None:
    command = [sys.executable, "-m", "agent.cli.main", "version"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert printed == f"oncegate {VERSION} {release.form()}\n"


async def test_status_metrics_and_live_view_have_version_and_form(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        documents = [(await served.client.get(f"/api/v1/{name}")).document for name in ("status", "live")]
        metrics = (await served.client.get("/metrics")).body.decode()
    assert [(found["version"], found["form"]) for found in documents] == [(VERSION, release.form())] * 2
    assert f'oncegate_build_info{{form="{release.form()}",version="{VERSION}"}} 1.0' in metrics


def test_the_log_begins_with_version_and_form(tmp_path: Path) -> None:
    with agent_process(configured(tmp_path, http="")) as agent:
        agent.start()
        agent.wait_for_log("agent=ready")
        first = agent.log().partition("\n")[0]
    assert f"agent=starting version={VERSION} form={release.form()}" in first
