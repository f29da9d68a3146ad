#!/usr/bin/env python3
"""Pipes the lines of a file through batch, on all executors of a Spark cluster.

    spark-submit --files model.gguf,build/batch spark.py requests.jsonl results

Each partition starts one process. A result depends on its line alone, so tasks that Spark repeats
give the same lines again.
"""
import sys

from pyspark.sql import SparkSession


def main(requests: str, results: str) -> None:
    spark = SparkSession.builder.appName("bitnet-batch").getOrCreate()
    lines = spark.sparkContext.textFile(requests)
    # 1 says that some lines have an error as their result
    command = "sh -c './batch -m model.gguf -q || { code=$?; [ $code -eq 1 ] || exit $code; }'"
    lines.pipe(command, checkCode=True).saveAsTextFile(results)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
