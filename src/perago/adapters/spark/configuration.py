"""What a Spark driver is started with: what the user says, and defaults for where it runs."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping


_MEBIBYTE = 1024**2
_LEAST_MEMORY, _MOST_MEMORY = 1024 * _MEBIBYTE, 8192 * _MEBIBYTE
_PARTITIONS_PER_CORE = 8
_SETTING = re.compile(r"([^\s=:]+)\s*[=:]?\s*(.*)")  # as Java's properties have it
QUIET = {
    "spark.ui.enabled": "false",
    "spark.sql.adaptive.enabled": "true",
    # What a task makes of its input must not depend on the machine it happens to run on.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.ui.showConsoleProgress": "false",
}
"""Defaults wherever it runs."""
SHARING = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.timeout": "60s",
}
"""Give executors back when there is nothing to compute.

A standalone master gives a driver all cores there are, for as long as it lives, and ours outlive
their tasks: a second one would wait for the first for ever.
"""


@dataclass(frozen=True, slots=True)
class Machine:
    """What there is to compute with."""

    cores: int
    memory: int

    @classmethod
    def here(cls) -> Machine:
        """This machine, or what a container leaves of it."""
        pages, page = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
        limits = [pages * page]
        for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
            try:
                limits.append(int(Path(file).read_text(encoding="ascii")))
            except (OSError, ValueError):  # no such file, or "max"
                continue
        return cls(len(os.sched_getaffinity(0)), min(limits))


def is_local(master: str) -> bool:
    """Whether it names threads of the driver itself."""
    return master == "local" or master.startswith("local[")


def chosen_master(master: str | None, chosen: Mapping[str, str]) -> str:
    """Where a driver computes: what SPARK_MASTER names, then Spark's own setting, then here."""
    return master or chosen.get("spark.master") or "local[*]"


def driver_configuration(
    master: str | None,
    chosen: Mapping[str, str],
    *,
    machine: Machine,
    drivers: int,
    scratch: Path,
    keep_success: bool = False,
    on_lakefs: bool = False,
) -> dict[str, str]:
    """All settings of a driver that shares the machine with others. Those ``chosen`` stand.

    Scratch files go below ``scratch``, whatever ends the driver: its owner removes that.
    """
    where = chosen_master(master, chosen)
    return {
        "spark.app.name": "perago",
        "spark.sql.warehouse.dir": f"file://{scratch}/warehouse",
        "spark.driver.defaultJavaOptions": f'"-Djava.io.tmpdir={scratch}"',
        "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": str(keep_success).lower(),
        **QUIET,
        **(COMMITTER if on_lakefs else {}),
        **(_local(machine, drivers, scratch) if is_local(where) else {}),
        **(SHARING if where.startswith("spark://") else {}),
        **chosen,
        "spark.master": where,
    }


def _local(machine: Machine, drivers: int, scratch: Path) -> dict[str, str]:
    memory = min(max(machine.memory // 4 // drivers, _LEAST_MEMORY), _MOST_MEMORY)
    partitions = max(machine.cores // drivers, 1) * _PARTITIONS_PER_CORE
    return {
        "spark.driver.memory": f"{memory // _MEBIBYTE}m",
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(scratch),
    }


def spark_defaults(environment: Mapping[str, str], spark_home: Path) -> dict[str, str]:
    """What the user's own spark-defaults.conf says, wherever Spark would look for it."""
    folder = environment.get("SPARK_CONF_DIR") or spark_home / "conf"
    try:
        lines = (Path(folder) / "spark-defaults.conf").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    texts = (line.strip() for line in lines if not line.lstrip().startswith(("#", "!")))
    return {found[1]: found[2] for text in texts if (found := _SETTING.match(text))}


def as_properties(settings: Mapping[str, str]) -> str:
    """The text of a Java properties file with these settings."""
    return "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in settings.items())


def _escaped(text: str) -> str:
    special = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", " ": "\\ "}
    for sign in "=:#!":
        special[sign] = f"\\{sign}"
    return "".join(
        special.get(sign) or (sign if sign.isascii() else _unicode(sign)) for sign in text
    )


def _unicode(sign: str) -> str:
    units = sign.encode("utf-16-be")
    return "".join(f"\\u{units[n] << 8 | units[n + 1]:04x}" for n in range(0, len(units), 2))


# --- How Spark reaches a lakeFS: its S3 gateway, by Hadoop's ``s3a``, committing by ---
COMMITTER = {
    "spark.sql.sources.commitProtocolClass": (
        "org.apache.spark.internal.io.cloud.PathOutputCommitProtocol"
    ),
    "spark.sql.parquet.output.committer.class": (
        "org.apache.spark.internal.io.cloud.BindingParquetOutputCommitter"
    ),
    "spark.hadoop.mapreduce.outputcommitter.factory.scheme.s3a": (
        "org.apache.hadoop.fs.s3a.commit.S3ACommitterFactory"
    ),
    "spark.hadoop.fs.s3a.committer.name": "magic",
    # Others may be writing below the same path; a storage's life-cycle rule sees to what is left.
    "spark.hadoop.fs.s3a.committer.abort.pending.uploads": "false",
}
"""Nothing a job writes is there before the job is committed, and nothing is copied for that."""
RENAMING = {
    "spark.sql.sources.commitProtocolClass": (
        "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"
    ),
    # Parquet's own committer is one of these already.
    "spark.sql.sources.outputCommitterClass": (
        "org.apache.hadoop.mapreduce.lib.output.FileOutputCommitter"
    ),
}
"""For overwriting single partitions, which the others refuse: written aside, then renamed."""


@dataclass(frozen=True, slots=True)
class LakeFSLogin:
    """A lakeFS server and the key to use there."""

    endpoint: str
    access_key_id: str
    secret_access_key: str = field(repr=False)

    def bucket_settings(self, repository: str) -> dict[str, str]:
        """Hadoop settings for the bucket that a repository is to ``s3a``."""
        return {f"fs.s3a.bucket.{repository}.{name}": v for name, v in self._settings().items()}

    def global_settings(self) -> dict[str, str]:
        """Hadoop settings for a Spark that has no other buckets than this server's."""
        return {f"fs.s3a.{name}": value for name, value in self._settings().items()}

    def _settings(self) -> dict[str, str]:
        return {
            "endpoint": self.endpoint,
            "endpoint.region": "us-east-1",  # a gateway has none, and a signature needs one
            "path.style.access": "true",
            "connection.ssl.enabled": str(urlsplit(self.endpoint).scheme == "https").lower(),
            "access.key": self.access_key_id,
            "secret.key": self.secret_access_key,
            "aws.credentials.provider": ("org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"),
            # A commit never changes, and nobody else writes to a staging branch.
            "change.detection.mode": "none",
        }


def s3a_uri(repository: str, ref: str, key: str) -> str:
    """Where ``s3a`` finds a key at a commit or on a branch."""
    return f"s3a://{repository}/{ref}/{key}"
