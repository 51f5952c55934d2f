"""Spark's settings: those of a driver, and those by which Spark reaches lakeFS.

Spark reaches lakeFS through its S3 gateway, by Hadoop's ``s3a``.
"""

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
_PROPERTY = re.compile(r"([^\s=:]+)\s*[=:]?\s*(.*)")  # as in Java's properties files
DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.sql.adaptive.enabled": "true",
    # The result of a task must not depend on the machine it happens to run on.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.ui.showConsoleProgress": "false",
}
"""Defaults wherever Spark runs."""
DYNAMIC_ALLOCATION = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.timeout": "60s",
}
"""Give executors back when there is nothing to compute.

A standalone master gives a driver all cores for as long as the driver lives, and ours outlive their
tasks: a second driver would wait for the first one forever.
"""
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
    # Other jobs may be writing below the same path; the storage's life-cycle rule removes the rest.
    "spark.hadoop.fs.s3a.committer.abort.pending.uploads": "false",
}
"""Files of a job become visible when the job is committed, and nothing is copied for that."""
RENAMING_COMMITTER = {
    "spark.sql.sources.commitProtocolClass": (
        "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"
    ),
    # Parquet's own committer is one of these already.
    "spark.sql.sources.outputCommitterClass": (
        "org.apache.hadoop.mapreduce.lib.output.FileOutputCommitter"
    ),
}
"""For overwriting single partitions, which COMMITTER refuses: written elsewhere, then renamed."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The cores and bytes of memory there are to compute with."""

    cores: int
    memory: int

    @classmethod
    def here(cls) -> Machine:
        """Return those of this machine, within the limits of its container."""
        pages, page = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
        limits = [pages * page]
        for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
            try:
                limits.append(int(Path(file).read_text(encoding="ascii")))
            except (OSError, ValueError):  # no such file, or "max"
                continue
        return cls(len(os.sched_getaffinity(0)), min(limits))


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
    """Return all settings of one of ``drivers`` that share the machine.

    The user's settings, ``chosen``, override the defaults; ``master`` overrides them. Scratch files
    go below ``scratch``, which the driver's owner removes however the driver ends.
    """
    where = chosen_master(master, chosen)
    return {
        "spark.app.name": "perago",
        "spark.sql.warehouse.dir": f"file://{scratch}/warehouse",
        "spark.driver.defaultJavaOptions": f'"-Djava.io.tmpdir={scratch}"',
        "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": str(keep_success).lower(),
        **DEFAULTS,
        **(COMMITTER if on_lakefs else {}),
        **(_local(machine, drivers, scratch) if is_local(where) else {}),
        **(DYNAMIC_ALLOCATION if where.startswith("spark://") else {}),
        **chosen,
        "spark.master": where,
    }


def chosen_master(master: str | None, chosen: Mapping[str, str]) -> str:
    """Return where a driver computes: SPARK_MASTER, then Spark's own setting, then here."""
    return master or chosen.get("spark.master") or "local[*]"


def is_local(master: str) -> bool:
    """Whether Spark computes in threads of the driver itself."""
    return master == "local" or master.startswith("local[")


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
    """Return the settings in the user's spark-defaults.conf, which is where Spark looks for it."""
    folder = environment.get("SPARK_CONF_DIR") or spark_home / "conf"
    try:
        lines = (Path(folder) / "spark-defaults.conf").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    texts = (line.strip() for line in lines if not line.lstrip().startswith(("#", "!")))
    return {found[1]: found[2] for text in texts if (found := _PROPERTY.match(text))}


def as_properties(settings: Mapping[str, str]) -> str:
    """Return the text of a Java properties file with these settings."""
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


@dataclass(frozen=True, slots=True)
class LakeFSLogin:
    """The address of a lakeFS server, and a key for it."""

    endpoint: str
    access_key_id: str
    secret_access_key: str = field(repr=False)

    def bucket_settings(self, repository: str) -> dict[str, str]:
        """Return Hadoop's settings for the bucket that a repository is to ``s3a``."""
        return {f"fs.s3a.bucket.{repository}.{name}": v for name, v in self._settings().items()}

    def global_settings(self) -> dict[str, str]:
        """Return Hadoop's settings for a Spark whose buckets are all on this server."""
        return {f"fs.s3a.{name}": value for name, value in self._settings().items()}

    def _settings(self) -> dict[str, str]:
        return {
            "endpoint": self.endpoint,
            "endpoint.region": "us-east-1",  # lakeFS has no region, but a signature needs one
            "path.style.access": "true",
            "connection.ssl.enabled": str(urlsplit(self.endpoint).scheme == "https").lower(),
            "access.key": self.access_key_id,
            "secret.key": self.secret_access_key,
            "aws.credentials.provider": ("org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"),
            # A commit never changes, and a staging branch has one writer.
            "change.detection.mode": "none",
        }


def s3a_uri(repository: str, ref: str, key: str) -> str:
    """Return the address of a key at a commit or on a branch."""
    return f"s3a://{repository}/{ref}/{key}"
