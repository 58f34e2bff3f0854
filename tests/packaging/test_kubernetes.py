"""The manifests for Kubernetes: their fields are those of Kubernetes, and what they name is what the programs have."""

import re
import ssl
import sys
import tomllib
import urllib.request
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import yaml

from agent.config import load, readers
from agent.config.settings import Settings
from cloud import settings as job
from cloud.cli import spark
from cloud.jars import ivy
from tests.agent.http.test_access import CERTIFICATE, KEY
from tests.packaging.roots import CHECKOUT
from tests.packaging.test_dockerfiles import steps
from tests.support.agent_process import agent_process, wait_until_ready
from tests.support.older_spark import installed

FOLDER = CHECKOUT / "docs" / "examples" / "kubernetes"
AGENT: list[dict[str, Any]] = list(yaml.safe_load_all((FOLDER / "agent.yaml").read_text()))
CONFIGURATION, SERVICE, STATEFUL_SET = AGENT
POD = STATEFUL_SET["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
APPLICATION: dict[str, Any] = yaml.safe_load((FOLDER / "spark-application.yaml").read_text())
JOB = APPLICATION["spec"]
DRIVER, EXECUTOR = (JOB[name]["podTemplateSpec"]["spec"] for name in ("driverSpec", "executorSpec"))
PODS = {"agent": POD, "driver": DRIVER, "executor": EXECUTOR}
TEMPLATES = [
    {"apiVersion": "v1", "kind": "PodTemplate", "template": JOB[name]["podTemplateSpec"]}
    for name in ("driverSpec", "executorSpec")
]
PINS = dict(line.split("==") for line in (CHECKOUT / "constraints.txt").read_text().splitlines() if "==" in line)
KUBERNETES = "1.34"
"""The oldest version that the operator recommends."""
VALIDATE = "1.37.0"


@cache
def validate() -> Callable[..., None]:
    """Return the check by the schemas of Kubernetes, whose package takes 110 MB."""
    sys.path.append(str(installed("kubernetes-validate", VALIDATE)))
    import kubernetes_validate  # type: ignore[import-not-found]  # in that folder

    return partial(kubernetes_validate.validate, desired_version=KUBERNETES, strict=True)


def settings() -> Settings:
    """Return the configuration of the set's first pod, by the agent's own loader."""
    fields = {"metadata.name": f"{STATEFUL_SET['metadata']['name']}-0"}
    environment = {one["name"]: fields[one["valueFrom"]["fieldRef"]["fieldPath"]] for one in CONTAINER["env"]}
    assert all(load.OVERRIDE_SEPARATOR in name for name in environment)  # others are not read
    document = tomllib.loads(CONFIGURATION["data"][load.DEFAULT_PATH.name])
    return load.parse(document, load.Source("agent.yaml"), environment)


def place(pod: dict[str, Any], kind: str) -> str:
    """Return where the pod has its only volume of a kind."""
    (volume,) = (one["name"] for one in pod["volumes"] if kind in one)
    (mount,) = (one for one in pod["containers"][0]["volumeMounts"] if one["name"] == volume)
    assert mount.get("readOnly", kind == "emptyDir")
    return str(mount["mountPath"])


def user_of(dockerfile: str) -> str:
    return [value for instruction, value in steps(dockerfile) if instruction == "USER"][-1]


@pytest.mark.heavy
@pytest.mark.parametrize("document", [*AGENT, *TEMPLATES], ids=lambda document: document["kind"])
def test_all_fields_are_those_of_the_schemas(document: dict[str, Any]) -> None:
    validate()(document)


def test_the_agent_reads_the_configuration_and_has_its_pods_name_as_its_id() -> None:
    found = settings()
    assert found.gateway.id == "oncegate-0"
    (volume,) = (one["configMap"] for one in POD["volumes"] if "configMap" in one)
    assert volume["name"] == CONFIGURATION["metadata"]["name"]
    assert place(POD, "configMap") == str(load.DEFAULT_PATH.parent)
    files = (found.http.token_file, found.http.tls_certificate, found.http.tls_key, found.kafka.properties_file)
    assert {str(file.parent) for file in files if file} == {place(POD, "secret")}
    assert None not in files


def test_the_store_is_on_a_volume_of_its_own_with_space_for_it() -> None:
    found = settings()
    (claim,) = STATEFUL_SET["spec"]["volumeClaimTemplates"]
    mounts = {mount["mountPath"]: mount["name"] for mount in CONTAINER["volumeMounts"]}
    assert mounts[str(found.gateway.state_dir)] == claim["metadata"]["name"]
    assert readers.size(claim["spec"]["resources"]["requests"]["storage"] + "B") > found.store.max_bytes
    assert claim["spec"]["accessModes"] == ["ReadWriteOncePod"]


def test_the_ports_are_those_of_the_agent_and_lead_to_its_pods() -> None:
    (port,) = CONTAINER["ports"]
    assert settings().http.bind == f"[::]:{port['containerPort']}"
    named = [one["targetPort"] for one in SERVICE["spec"]["ports"]]
    probes = [value["httpGet"] for name, value in CONTAINER.items() if name.endswith("Probe")]
    assert {port["name"]} == {*named, *(probe["port"] for probe in probes)}
    labels = STATEFUL_SET["spec"]["template"]["metadata"]["labels"]
    assert labels == STATEFUL_SET["spec"]["selector"]["matchLabels"] == SERVICE["spec"]["selector"]
    assert STATEFUL_SET["spec"]["serviceName"] == SERVICE["metadata"]["name"]


def test_an_agent_with_this_configuration_and_files_of_the_pods_group_answers_all_probes(tmp_path: Path) -> None:
    text = CONFIGURATION["data"]["oncegate.toml"].replace(place(POD, "secret"), str(tmp_path))
    (mode,) = (one["secret"]["defaultMode"] for one in POD["volumes"] if "secret" in one)
    files = {"tokens": "", "kafka": "", "tls.crt": CERTIFICATE.read_text(), "tls.key": KEY.read_text()}
    for name, content in files.items():
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(mode)
    (tmp_path / "oncegate.toml").write_text(text)
    environment = {
        "ONCEGATE_GATEWAY__ID": "oncegate-0",
        "ONCEGATE_GATEWAY__STATE_DIR": str(tmp_path / "state"),
        "ONCEGATE_HTTP__BIND": "[::1]:0",
        "ONCEGATE_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1",
    }
    context = ssl.create_default_context(cafile=str(CERTIFICATE))
    context.check_hostname = False
    with agent_process(tmp_path / "oncegate.toml", environment) as agent:
        agent.start()
        port = wait_until_ready(agent)["http"]
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            get = CONTAINER[probe]["httpGet"]
            address = f"{get['scheme'].lower()}://[::1]:{port}{get['path']}"
            with urllib.request.urlopen(address, timeout=60, context=context) as answer:
                assert answer.status == 200


def test_memory_and_the_time_to_end_are_those_of_the_units() -> None:
    unit = (CHECKOUT / "systemd" / "oncegate.service").read_text().splitlines()
    assert f"MemoryMax={CONTAINER['resources']['limits']['memory'].removesuffix('i')}" in unit
    assert f"TimeoutStopSec={POD['terminationGracePeriodSeconds']}" in unit
    of_job = (CHECKOUT / "systemd" / "oncegate-cloud.service").read_text().splitlines()
    assert f"TimeoutStopSec={DRIVER['terminationGracePeriodSeconds']}" in of_job
    restart, timeout = (JOB["applicationTolerations"][f"{name}Config"] for name in ("restart", "applicationTimeout"))
    assert f"RestartSec={restart['restartBackoffMillis'] // 1000}" in of_job
    assert timeout["forceTerminationGracePeriodMillis"] > 1000 * DRIVER["terminationGracePeriodSeconds"]


@pytest.mark.parametrize("pod", PODS)
def test_no_pod_has_more_rights_than_it_needs(pod: str) -> None:
    given = PODS[pod]
    (container,) = given["containers"]
    user = user_of("Dockerfile" if pod == "agent" else "spark.Dockerfile")
    of_pod = given["securityContext"]
    assert f"{of_pod['runAsUser']}:{of_pod['runAsGroup']}" == user
    assert (of_pod["runAsNonRoot"], of_pod["seccompProfile"]) == (True, {"type": "RuntimeDefault"})
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert given.get("automountServiceAccountToken", True) == (pod == "driver")  # it starts the executors
    assert not any("secretKeyRef" in str(one) for one in container.get("env", ()))


def test_the_job_takes_its_arguments_and_a_secret_of_the_pods_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = place(DRIVER, "secret")
    (mode,) = (volume["secret"]["defaultMode"] for volume in DRIVER["volumes"] if "secret" in volume)
    (tmp_path / "kafka").write_text("security.protocol=SSL\n")
    (tmp_path / "kafka").chmod(mode)
    words = [word.replace(folder, str(tmp_path)) for word in JOB["driverArgs"]]
    name = "CREDENTIALS_DIRECTORY"
    assert JOB["sparkConf"][f"spark.kubernetes.driverEnv.{name}"] == folder
    monkeypatch.setenv(name, str(tmp_path))
    found = job.parse(words)
    found.check_folders()
    assert found.kafka.properties == {"security.protocol": "SSL"}
    monkeypatch.delenv(name)
    with pytest.raises(SystemExit):
        job.parse(words)


def test_spark_knows_each_property_and_has_what_the_command_sets() -> None:
    conf: dict[str, str] = JOB["sparkConf"]
    assert conf | spark.DEFAULTS == conf
    classes = r"org/apache/spark/(internal/config|deploy/k8s/Config|sql/internal/SQLConf|launcher).*\.class"
    known = b""
    for part in ("core", "kubernetes", "catalyst", "launcher"):
        (jar,) = (ivy.pyspark_folder() / "jars").glob(f"spark-{part}_*.jar")
        with ZipFile(jar) as opened:
            known += b"".join(opened.read(entry) for entry in opened.namelist() if re.match(classes, entry))
    # Spark adds these ends to what its classes have.
    names = [re.sub(r"(?<=\.driverEnv\.)[A-Z_]+$|\.serviceAccountName$", "", name) for name in conf]
    assert [name for name in names if name.encode() not in known] == []


def test_the_image_has_this_spark_and_the_jobs_program() -> None:
    version = JOB["runtimeVersions"]["sparkVersion"]
    assert version == PINS["pyspark"]
    assert ("FROM", f"apache/spark:{version}-scala AS spark") in steps("spark.Dockerfile")
    (packages,) = re.findall(r"SPARK_HOME=(\S+)/pyspark\b", str(steps("cloud.Dockerfile")))
    program = JOB["pyFiles"].removeprefix(f"local://{packages}/")
    assert (CHECKOUT / program).samefile(job.__file__.replace("settings.py", "job.py"))
