"""The login of Amazon MSK by IAM: tokens that Amazon's library signs, for the client's OAUTHBEARER."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final

from agent.forward.errors import KafkaSettingsError

MECHANISM: Final = "AWS_MSK_IAM"
"""The name of the mechanism, as in Kafka's Java client."""
REGION: Final = "aws.region"
_SIGNER: Final = "aws_msk_iam_sasl_signer"

Token = tuple[str, float]
"""The token, and its expiry in seconds since 1970 UTC."""


def with_login(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return a client's properties, with a source of tokens in place of the mechanism of MSK."""
    config: dict[str, Any] = dict(properties)
    region = config.pop(REGION, None)
    mechanisms = [name for name in ("sasl.mechanism", "sasl.mechanisms") if config.get(name, "").upper() == MECHANISM]
    if not mechanisms:
        if region is not None:
            raise KafkaSettingsError(f"kafka.properties: {REGION} is only for sasl.mechanism = {MECHANISM!r}")
        return config
    if not region:
        raise KafkaSettingsError(f"kafka.properties: sasl.mechanism = {MECHANISM!r} needs {REGION}")
    config[mechanisms[0]] = "OAUTHBEARER"
    config["oauth_cb"] = _tokens(region)
    return config


def _tokens(region: str) -> Callable[[str], Token]:
    try:
        provider = import_module(f"{_SIGNER}.MSKAuthTokenProvider")
    except ImportError as error:
        raise KafkaSettingsError(
            f"kafka.properties: sasl.mechanism = {MECHANISM!r} needs Amazon's signer ({error}): install Oncegate with "
            "its extra `aws`"
        ) from error

    def token(_: str) -> Token:
        signed, expiry_ms = provider.generate_auth_token(region)
        return signed, expiry_ms / 1000

    return token
