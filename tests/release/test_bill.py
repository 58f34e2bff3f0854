"""The bill of materials: libraries inside wheels and jars are in it, and no known vulnerable version passes."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from release import advisories, libraries
from release.errors import ReleaseError
from tests.docs.pages import ROOT

Component = dict[str, Any]


@pytest.fixture(scope="module")
def components(tmp_path_factory: pytest.TempPathFactory) -> list[Component]:
    """Return what is found inside the packages of this environment, and in the lock file of the jars."""
    bill = tmp_path_factory.mktemp("bill") / "bill.json"
    bill.write_text('{"components": []}')
    program = (ROOT / "release" / "libraries.py", bill, ROOT / "cloud" / "jars" / "jars.lock")
    subprocess.run([sys.executable, "-I", *program], check=True)
    found: list[Component] = json.loads(bill.read_text())["components"]
    return found


@pytest.mark.heavy
def test_libraries_inside_wheels_and_jars_are_named_with_their_versions(components: list[Component]) -> None:
    found = {
        (holder["value"], one["name"]): one.get("version", "")
        for one in components
        for holder in one.get("properties", ())
    }
    for inside in (
        *(("confluent-kafka", name) for name in ("librdkafka", "openssl", "zlib", "zstd", "lz4")),
        *(("cryptography", "openssl"), ("psycopg-binary", "openssl"), ("psycopg-binary", "libpq")),
        *(("pyspark", "hadoop-client-api"), ("pyspark", "log4j-core")),
    ):
        assert found[inside][0].isdigit(), inside
    assert found["confluent-kafka", "curl"] == ""  # its objects do not contain it
    assert ("psycopg-binary", "openldap") in found
    assert ("pyspark", "jackson-databind") in found, "of several jars, which contain its classes"
    assert [one["group"] for one in components if one["name"] == "delta-storage"] == ["io.delta"]
    assert list(advisories.concerned(components)) == []


def test_a_vulnerable_version_ends_the_release(tmp_path: Path) -> None:
    bill = tmp_path / "bill.json"
    fine = [{"name": "openssl", "version": version} for version in ("3.0.7", "3.5.8", "1.1.1")]
    fine += [{"name": "curl"}, {"name": "Zlib", "version": "1.3.2"}]
    bill.write_text(json.dumps({"components": fine}))
    advisories.check(bill)
    planted = [{"name": "openssl", "version": "3.0.6"}, {"name": "Zlib", "version": "1.2.11"}]
    bill.write_text(json.dumps({"components": fine + planted}))
    with pytest.raises(ReleaseError, match=r"openssl 3\.0\.6: CVE-2022-3602.*\nzlib 1\.2\.11: CVE-2018-25032"):
        advisories.check(bill)


@pytest.mark.parametrize(
    ("name", "version", "is_concerned"),
    [
        ("log4j-core", "2.0", True),
        ("urllib3", "2", True),
        ("h11", "0.16", False),
        ("h11", "0.16.0rc1", True),
        ("openssl", "3.0.7-beta2", True),
        ("openssl", "1:3.0.6-1.el9", True),
        ("openssl", "3.0.13+deb12u1", False),
        ("openssl", "1.1.1b", False),
        ("postgresql", "42.7.6.jre7", True),
        ("kafka-clients", "3.9.1-ccs", False),
        ("lz4", "", True),
        ("curl", "", False),
    ],
)
def test_versions_are_compared_in_their_own_forms_and_an_unknown_one_does_not_pass(
    name: str, version: str, is_concerned: bool
) -> None:
    assert bool(list(advisories.concerned([{"name": name, "version": version}]))) is is_concerned


@pytest.mark.parametrize("version", ["1.1.1w", "3.0.13+quic", "3.5.0-beta1", "3.0.2"])
def test_every_form_of_a_version_of_openssl_is_found(version: str) -> None:
    text = b"\0OpenSSL %b  4 Feb 2026\0" % version.encode()
    assert re.findall(libraries._TEXTS["openssl"], text) == [version.encode()]
