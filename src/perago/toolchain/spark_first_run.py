"""A script: run a Spark driver that does a little of everything, so that Java loads its classes.

Arguments: a scratch directory, the path of the archive, and the driver's extra class path.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as f

_CLOSED_PORT = "127.0.0.1:9"
_COMMIT_PROTOCOL = "org.apache.spark.internal.io.cloud.PathOutputCommitProtocol"


def main(arguments: list[str]) -> None:
    scratch, archive, class_path = Path(arguments[0]), arguments[1], arguments[2]
    settings = {
        "spark.driver.extraClassPath": class_path,
        "spark.driver.extraJavaOptions": (
            # Logging is off: Java would list thousands of classes that it can't archive.
            f"-XX:ArchiveClassesAtExit={archive} -Xlog:cds*=off -Djava.io.tmpdir={scratch}"
        ),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": (scratch / "warehouse").as_uri(),
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.hadoop.fs.s3a.endpoint": f"http://{_CLOSED_PORT}",
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.access.key": "none",
        "spark.hadoop.fs.s3a.secret.key": "none",
        "spark.hadoop.fs.s3a.attempts.maximum": "1",
        "spark.hadoop.fs.s3a.retry.limit": "0",
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    _read_and_write(session.newSession(), scratch.as_uri())
    if class_path:
        _write_to_s3(session.newSession())
    session.stop()


def _read_and_write(session: SparkSession, directory: str) -> None:
    numbers = session.range(1000).select(
        "id", (f.col("id") % 3).alias("third"), f.col("id").cast("string").alias("name")
    )
    numbers.write.json(f"{directory}/json")
    numbers.write.csv(f"{directory}/csv", header=True)
    read = session.read.json(f"{directory}/json").dropDuplicates(["id"]).where("id > 10")
    read.write.partitionBy("third").parquet(f"{directory}/parquet")
    read.write.mode("overwrite").partitionBy("third").parquet(f"{directory}/parquet")
    table = session.read.parquet(f"{directory}/parquet")
    ranked = table.withColumn(
        "rank", f.row_number().over(Window.partitionBy("third").orderBy(f.desc("id")))
    )
    names = session.read.csv(f"{directory}/csv", header=True).select("name")
    ranked.join(names, "name").groupBy("third").agg(
        f.count("*"), f.countDistinct("name"), f.max("rank")
    ).orderBy("third").collect()
    table.count()


def _write_to_s3(session: SparkSession) -> None:
    session.conf.set("spark.sql.sources.commitProtocolClass", _COMMIT_PROTOCOL)
    with suppress(Exception):  # no server answers, but by then the classes are loaded
        session.range(10).write.mode("append").parquet("s3a://none/table")


if __name__ == "__main__":
    main(sys.argv[1:])
