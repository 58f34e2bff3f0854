"""Checks the files that the configuration names: whether the service can read them, and others their secrets."""

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from grp import getgrgid
from pathlib import Path
from pwd import getpwnam, getpwuid, struct_passwd
from typing import Any, Final

from agent.cli.doctor.finding import Finding, fine, warning, wrong
from agent.coap.errors import CredentialsError
from agent.coap.oscore.credentials import read_credentials
from agent.config import readers
from agent.config.load import key_of, parts_of
from agent.config.origins import is_secret
from agent.config.settings import Settings
from agent.http.address import reaches_loopback_only
from contract.files import read

SERVICE_USER: Final = "oncegate"
"""Where there is no state folder yet."""
LOCAL: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_NO: Final = frozenset({"false", "0", "no", "f", "n"})
_UNITS: Final = tuple(Path(folder) / "oncegate.service" for folder in ("/etc/systemd/system", "/lib/systemd/system"))
_HIDDEN: Final = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")  # named, not used
"""What the unit's ProtectHome and PrivateTmp hide from the service."""
_PROPERTIES: Final = {
    "ssl.ca.location": False,
    "ssl.certificate.location": False,
    "ssl.key.location": True,
    "ssl.keystore.location": True,
    "sasl.kerberos.keytab": True,
}
"""Librdkafka's properties that name a file, and whether it is secret."""


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file that the configuration names."""

    section: str
    key: str
    path: Path
    secret: bool


def service_user(sections: Mapping[str, Any]) -> struct_passwd | None:
    """Return the service's user, the owner of the state folder; None where the present user does all checks.

    Only root can try what another user may do.
    """
    if os.geteuid() != 0:
        return None
    folder = sections["gateway"].state_dir if "gateway" in sections else None
    try:
        user = getpwuid(folder.stat().st_uid) if folder is not None and folder.exists() else getpwnam(SERVICE_USER)
    except KeyError:
        return None
    return user if user.pw_uid != 0 else None


@contextmanager
def as_user(user: struct_passwd | None) -> Iterator[None]:
    """Have only the rights of this user for the block; of the present one where it is None."""
    if user is None:
        yield
        return
    groups, group, own = os.getgroups(), os.getegid(), os.geteuid()
    os.setgroups(os.getgrouplist(user.pw_name, user.pw_gid))
    os.setegid(user.pw_gid)
    os.seteuid(user.pw_uid)
    try:
        yield
    finally:
        os.seteuid(own)
        os.setegid(group)
        os.setgroups(groups)


def named_files(sections: Mapping[str, Any]) -> Iterator[NamedFile]:
    """Yield the files that the enabled sections name; systemd passes its secrets, whoever may read them."""
    for section, settings in sections.items():
        if not getattr(settings, "enabled", True):
            continue
        for option in fields(settings):
            kind, path = option.metadata["read"], getattr(settings, option.name)
            named = kind in (readers.file, readers.secret_path) and path is not None
            if named and path.parent != readers.SECRETS_FOLDER:
                yield NamedFile(section, key_of(option), path, kind is readers.secret_path)
    for name, secret in _PROPERTIES.items():
        if path := kafka_properties(sections).get(name):
            yield NamedFile("kafka", "properties", Path(path), secret)


def unreadable(sections: Mapping[str, Any]) -> Iterator[tuple[NamedFile, str]]:
    """Yield existing files that the service's user may not read, each with reason and remedy."""
    user = service_user(sections)
    if user is None:
        return
    for file in named_files(sections):
        with as_user(user):
            try:
                read(file.path)
            except PermissionError:
                reason = f"{file.path}: the service's user {user.pw_name} may not read it; {_remedy(user, file.path)}"
                yield file, reason
            except OSError:
                continue  # reported by those that use it


def check_hidden(sections: Mapping[str, Any], units: Sequence[Path] = _UNITS) -> Iterator[Finding]:
    """Warn about files in folders that the unit hides from the service, where there is a unit."""
    if not any(unit.exists() for unit in units):
        return
    for file in named_files(sections):
        for folder in _HIDDEN:
            if file.path.absolute().is_relative_to(folder):
                text = f"{file.section}.{file.key}: the service's unit hides {folder} from it, and {file.path}"
                yield warning("files", text, "move it below /etc/oncegate")


def check_files(sections: Mapping[str, Any]) -> Iterator[Finding]:
    """Check that the service can read its files."""
    for file, reason in unreadable(sections):
        text, _, remedy = reason.partition("; ")
        yield wrong("files", f"{file.section}.{file.key}: {text}", remedy)
    yield from check_hidden(sections)


def check_oscore(settings: Settings) -> Iterator[Finding]:
    """Check that the service can use its OSCORE credentials."""
    folder = settings.coap_oscore.credentials_dir
    assert folder is not None
    user = service_user(parts_of(settings))
    try:
        with as_user(user):
            found = read_credentials(folder)
    except CredentialsError as error:
        yield wrong("oscore", str(error), open_folder(folder, user))
        return
    if found.errors:
        yield wrong("oscore", f"{found}: {'; '.join(found.errors)}", open_folder(folder, user))
    elif found.credentials:
        yield fine("oscore", str(found))
    else:
        yield warning("oscore", f"{folder} has no credential: each sensor is refused", "oncegate credentials DEVICE")


def open_folder(folder: Path, user: struct_passwd | None) -> str:
    """Return the command that opens a folder of credentials to the service's user, and to no other."""
    group = SERVICE_USER if user is None else _group(user)
    return f"chgrp -R {group} {folder} && chmod 750 {folder} && chmod 640 {folder}/*.toml; then: oncegate check"


def _remedy(user: struct_passwd, path: Path) -> str:
    """Return what to do about a path that a user may not read; called with the user's rights."""
    for folder in reversed(path.absolute().parents):
        if not os.access(folder, os.X_OK, effective_ids=True):
            return f"the folder {folder} is closed to it: chgrp {_group(user)} {folder} && chmod g+x {folder}"
    return f"chgrp {_group(user)} {path} && chmod 640 {path}"


def _group(user: struct_passwd) -> str:
    try:
        return getgrgid(user.pw_gid).gr_name
    except KeyError:
        return str(user.pw_gid)


def check_secrets(settings: Settings, configuration: Path | None = None) -> Iterator[Finding]:
    """Warn about secrets that other users of this machine can read, and about those that travel unencrypted."""
    files = named_files(parts_of(settings))
    secret_files = {file.path: f"{file.section}.{file.key}" for file in files if file.secret}
    if configuration is not None and any(is_secret(name) for name in settings.kafka.properties):
        secret_files[configuration] = "the passwords in kafka.properties"
    for path, what in secret_files.items():
        try:
            mode = path.stat().st_mode
        except OSError:
            continue
        if mode & (stat.S_IRWXO | stat.S_IWGRP):
            text = f"{what}: others may read or change {path} (mode {stat.S_IMODE(mode):o})"
            hint = "move them to kafka.properties_file" if path == configuration else f"chmod o=,g-w {path}"
            yield warning("secrets", text, hint)
    yield from _check_encryption(settings)


def _check_encryption(settings: Settings) -> Iterator[Finding]:
    given = {name.lower(): value.lower() for name, value in kafka_properties(parts_of(settings)).items()}
    mechanism = given.get("sasl.mechanism", given.get("sasl.mechanisms", ""))
    if given.get("security.protocol") == "sasl_plaintext" and mechanism == "plain":
        yield warning("secrets", "kafka: the password is sent unencrypted (SASL_PLAINTEXT, PLAIN)", "use SASL_SSL")
    if given.get("enable.ssl.certificate.verification") in _NO:
        text = "kafka: enable.ssl.certificate.verification is off: anybody on the way can be the broker"
        yield warning("secrets", text, "remove it, and name the authority in ssl.ca.location")
    mqtt, http = settings.mqtt, settings.http
    if mqtt.enabled and mqtt.password_file and not mqtt.tls and mqtt.host not in LOCAL:
        yield warning("secrets", f"mqtt: the password is sent unencrypted to {mqtt.host}", "set mqtt.tls = true")
    if not http.enabled or http.token_file is None or http.tls_certificate is not None:
        return
    if not reaches_loopback_only(http.bind):
        text = f"http: tokens are sent unencrypted to {http.bind}"
        yield warning("secrets", text, "set http.tls_certificate and http.tls_key, or use a proxy with TLS")


def kafka_properties(sections: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the given properties of Kafka's client; none where they cannot be read."""
    from agent.forward.errors import KafkaSettingsError
    from agent.forward.kafka.client import given_properties

    try:
        return given_properties(sections["kafka"]) if "kafka" in sections else {}
    except KafkaSettingsError:
        return {}
