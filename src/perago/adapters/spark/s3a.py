"""How Spark reaches a lakeFS: its S3 gateway, by Hadoop's ``s3a``, committing by multipart uploads.

Settings are per repository, so that a task may read other buckets with settings of its own.
Credentials travel as Hadoop settings: never in a URI, and Spark redacts them wherever it shows any.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

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

    def settings_of(self, repository: str) -> dict[str, str]:
        """Hadoop settings for the bucket that a repository is to ``s3a``."""
        return {f"fs.s3a.bucket.{repository}.{name}": v for name, v in self._settings().items()}

    def settings_of_all(self) -> dict[str, str]:
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


def uri_of(repository: str, ref: str, key: str) -> str:
    """Where ``s3a`` finds a key at a commit or on a branch."""
    return f"s3a://{repository}/{ref}/{key}"
