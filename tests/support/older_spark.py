"""The older line of Spark, which is downloaded once: Iceberg has a runtime for that line alone."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from cloud.jars import download

VERSION = "4.1.3"


def home() -> Path:
    """Return its folder, as SPARK_HOME."""
    return installed("pyspark", VERSION, "--no-deps") / "pyspark"


def installed(package: str, version: str, *options: str) -> Path:
    """Return a folder with a package that the tests' own environment has not, or in another version."""
    folder = download.cache_folder() / f"{package.partition('[')[0]}-{version}"
    if not folder.exists():
        making = folder.with_name(f"{folder.name}.{os.getpid()}")
        pip = (sys.executable, "-m", "pip", "install", "--quiet", *options, "--target", str(making))
        subprocess.run((*pip, f"{package}=={version}"), check=True)
        try:
            making.rename(folder)
        except OSError:  # another test was faster
            shutil.rmtree(making)
    return folder
