"""Makes an sdist independent of when, where and by whom it was built; setuptools does that for wheels only."""

import gzip
import io
import tarfile
from pathlib import Path


def normalize(sdist: Path, epoch: int) -> None:
    """Rewrite an sdist: members in order, with this time, one owner, and no rights but those of the owner's choice."""
    packed = io.BytesIO()
    with (
        tarfile.open(sdist) as built,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for member in sorted(built.getmembers(), key=lambda member: member.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.pax_headers = {}
            archive.addfile(member, built.extractfile(member) if member.isfile() else None)
    with sdist.open("wb") as file, gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=epoch) as compressed:
        compressed.write(packed.getvalue())
