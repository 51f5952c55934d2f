"""Run as a script: a driver does a little of everything, so that its Java has loaded it by the end.

Arguments: a directory to work in, where the archive goes, and the driver's extra class path.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as f

_NOBODY = "127.0.0.1:9"
_COMMIT_PROTOCOL = "org.apache.spark.internal.io.cloud.PathOutputCommitProtocol"


def main(arguments: list[str]) -> None:
    place, archive, class_path = Path(arguments[0]), arguments[1], arguments[2]
    settings = {
        "spark.driver.extraClassPath": class_path,
        "spark.driver.extraJavaOptions": (
            # It lists thousands of classes that it can't keep.
            f"-XX:ArchiveClassesAtExit={archive} -Xlog:cds*=off -Djava.io.tmpdir={place}"
        ),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(place),
        "spark.sql.warehouse.dir": (place / "warehouse").as_uri(),
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.hadoop.fs.s3a.endpoint": f"http://{_NOBODY}",
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.access.key": "nobody",
        "spark.hadoop.fs.s3a.secret.key": "nobody",
        "spark.hadoop.fs.s3a.attempts.maximum": "1",
        "spark.hadoop.fs.s3a.retry.limit": "0",
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    _work(session.newSession(), place.as_uri())
    if class_path:
        _reach_for_nobody(session.newSession())
    session.stop()


def _work(session: SparkSession, place: str) -> None:
    numbers = session.range(1000).select(
        "id", (f.col("id") % 3).alias("third"), f.col("id").cast("string").alias("name")
    )
    numbers.write.json(f"{place}/json")
    numbers.write.csv(f"{place}/csv", header=True)
    read = session.read.json(f"{place}/json").dropDuplicates(["id"]).where("id > 10")
    read.write.partitionBy("third").parquet(f"{place}/parquet")
    read.write.mode("overwrite").partitionBy("third").parquet(f"{place}/parquet")
    table = session.read.parquet(f"{place}/parquet")
    ranked = table.withColumn(
        "rank", f.row_number().over(Window.partitionBy("third").orderBy(f.desc("id")))
    )
    names = session.read.csv(f"{place}/csv", header=True).select("name")
    ranked.join(names, "name").groupBy("third").agg(
        f.count("*"), f.countDistinct("name"), f.max("rank")
    ).orderBy("third").collect()
    table.count()


def _reach_for_nobody(session: SparkSession) -> None:
    session.conf.set("spark.sql.sources.commitProtocolClass", _COMMIT_PROTOCOL)
    with suppress(Exception):  # nobody answers, and all that was to ask is loaded
        session.range(10).write.mode("append").parquet("s3a://nobody/table")


if __name__ == "__main__":
    main(sys.argv[1:])
