"""Opens Parquet files with one engine, and prints what it reads in them as JSON.

    parquet.py ENGINE NAME=FILES...

ENGINE is duckdb, polars, clickhouse or spark. FILES is a file, or a directory with files below it.
The answer has for each NAME the number of rows, the first and the last `time` in microseconds since
1970, and the sum of `blocked_ns` or `latency_ns`, whichever of them is there.
"""

import json
import os
import sys


def sum_column(columns):
    return next((name for name in ("blocked_ns", "latency_ns") if name in columns), None)


def expressions(columns, micros):
    """The four values in SQL. `micros` turns a time into microseconds."""
    first, last = ["NULL", "NULL"]
    if "time" in columns:
        first, last = [micros.format(f"{which}(time)") for which in ("min", "max")]
    summed = sum_column(columns)
    total = f"sum({summed})" if summed else "NULL"
    return ["count(*)", first, last, total]


def select(columns, micros, source):
    return f"SELECT {', '.join(expressions(columns, micros))} FROM {source}"


def files(path):
    return path if os.path.isfile(path) else f"{path}/**/*.parquet"


def duckdb_answers(inputs):
    import duckdb

    for path in inputs:
        source = f"read_parquet('{files(path)}')"
        columns = duckdb.sql(f"FROM {source}").columns
        yield duckdb.sql(select(columns, "epoch_us({})", source)).fetchall()[0]


def polars_answers(inputs):
    import polars

    for path in inputs:
        table = polars.read_parquet(files(path))
        times = table["time"].dt.epoch("us") if "time" in table.columns else None
        summed = sum_column(table.columns)
        yield (
            len(table),
            None if times is None else times.min(),
            None if times is None else times.max(),
            table[summed].sum() if summed else None,
        )


def clickhouse_answers(inputs):
    import chdb

    for path in inputs:
        source = f"file('{files(path)}', Parquet)"
        described = json.loads(chdb.query(f"DESCRIBE {source}", "JSON").bytes())
        columns = [column["name"] for column in described["data"]]
        query = select(columns, "toUnixTimestamp64Micro(assumeNotNull({}))", source)
        row = json.loads(chdb.query(query, "JSONCompactEachRow").bytes())
        yield [None if value is None else int(value) for value in row]


def spark_answers(inputs):
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "1")
        .getOrCreate()
    )
    try:
        for path in inputs:
            table = spark.read.parquet(path)
            yield list(table.selectExpr(*expressions(table.columns, "unix_micros({})")).first())
    finally:
        spark.stop()


ENGINES = {
    "duckdb": duckdb_answers,
    "polars": polars_answers,
    "clickhouse": clickhouse_answers,
    "spark": spark_answers,
}

names, paths = zip(*(argument.split("=", 1) for argument in sys.argv[2:]))
answers = [list(answer) for answer in ENGINES[sys.argv[1]](paths)]
# ClickHouse has a first and a last time of no rows, and the sum of none is 0 for some.
answers = [answer if answer[0] else [0, None, None, None] for answer in answers]
print(json.dumps(dict(zip(names, answers))))
