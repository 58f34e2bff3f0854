"""A private S3 server (S3Proxy over a folder) as a local process."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from simulators.services import ports
from simulators.services.install import jars, java
from simulators.services.process import Command, Process
from simulators.services.service import ProcessService

BUCKET = "oncegate"
START_SECONDS_MAX = 120.0
# Anonymous access on 127.0.0.1: no secret is needed.
_PROPERTIES = """\
s3proxy.authorization=none
s3proxy.endpoint=http://127.0.0.1:{port}
jclouds.provider=filesystem-nio2
jclouds.identity=nobody
jclouds.credential=nothing
jclouds.filesystem.basedir={objects}
"""


class S3(ProcessService):
    """A server on a free port of 127.0.0.1 with one bucket, its log and its objects under the folder.

    The objects survive `kill` and the next `start`, which uses the same port.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._objects = self._folder / "objects"
        (self.port,) = ports.free(1)
        self.process = Process(Command("s3", self._command(), self._folder / "s3.log", self._folder))

    def start(self) -> None:
        """Start the server and return once it accepts connections."""
        (self._objects / BUCKET).mkdir(parents=True, exist_ok=True)
        (self._folder / "s3proxy.properties").write_text(_PROPERTIES.format(port=self.port, objects=self._objects))
        self.process.start()
        self.process.wait_for_port(self.port, START_SECONDS_MAX)

    def remove(self, folder: str) -> None:
        """Remove all objects below a folder of the bucket, bypassing the server."""
        shutil.rmtree(self._objects / BUCKET / folder)

    def uri(self, folder: str) -> str:
        return f"s3a://{BUCKET}/{folder}"

    def file(self, uri: str) -> Path:
        """Return the file of an object, as the server keeps it."""
        return self._objects / uri.removeprefix("s3a://")

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def spark_settings(self) -> Mapping[str, str]:
        """Return the Spark settings for the server; the jars are the set `jars.S3A`."""
        options = {
            "endpoint": self.endpoint,
            "endpoint.region": "us-east-1",
            "path.style.access": "true",
            "attempts.maximum": "2",  # detect a failed server within seconds
            "retry.limit": "2",
            "aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider",
        }
        return {f"spark.hadoop.fs.s3a.{name}": value for name, value in options.items()}

    def delta_options(self) -> dict[str, str]:
        """Return the storage options of the Python package `deltalake` for the server."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
            "AWS_SKIP_SIGNATURE": "true",
        }

    def iceberg_options(self) -> dict[str, str]:
        """Return the properties of PyIceberg for the server, which takes any key."""
        keys = {"s3.access-key-id": "nobody", "s3.secret-access-key": "nothing"}
        return {"s3.endpoint": self.endpoint, "s3.region": "us-east-1", **keys}

    def _command(self) -> tuple[str, ...]:
        classpath = ":".join(str(jar) for jar in jars.paths(jars.S3))
        logging = "-Dorg.slf4j.simpleLogger.logFile=System.out"  # standard output goes to the log
        main = ("org.gaul.s3proxy.Main", "--properties", str(self._folder / "s3proxy.properties"))
        return (str(java.require()), "-Xmx256m", "-XX:+UseSerialGC", logging, "-cp", classpath, *main)
