"""What keeps Spark quick on tiny data."""

SMALL = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "768m",
    "spark.sql.parquet.compression.codec": "uncompressed",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
