#!/usr/bin/env python3
"""Pipes the lines of a file through batch, on all executors of a Spark cluster.

    spark-submit --conf spark.executor.cores=8 --conf spark.task.cpus=8 \
        --files model.gguf,build/batch spark.py requests.jsonl results

Each partition starts one process, with as many threads as a task has cores. Processes of one
executor share its memory, so give a task all of its cores. What they take lies outside of Java:
spark.executor.memoryOverhead has to hold the model and its texts. A result depends on its line
alone, so tasks that Spark repeats give the same lines again.
"""
import sys

from pyspark.sql import SparkSession

# How many partitions each process gets, one after the other: as some take longer, the others go on.
PARTS = 4


def main(requests: str, results: str) -> None:
    spark = SparkSession.builder.appName("bitnet-batch").getOrCreate()
    context = spark.sparkContext
    threads = int(context.getConf().get("spark.task.cpus", "1"))
    processes = max(1, context.defaultParallelism // threads)
    # a small file would be two partitions
    lines = context.textFile(requests, minPartitions=PARTS * processes)
    # 1 says that some lines have an error as their result
    batch = f"./batch -m model.gguf -q -t {threads}"
    command = f"sh -c '{batch} || {{ code=$?; [ $code -eq 1 ] || exit $code; }}'"
    lines.pipe(command, checkCode=True).saveAsTextFile(results)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
