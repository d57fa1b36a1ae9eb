"""How many of a program's waits have a stack that is whole: an export's directory and process ids; writes JSON."""

import json
import sys

import duckdb

directory, pids = sys.argv[1], [int(pid) for pid in sys.argv[2].split(",")]


def table(name):
    return f"read_parquet('{directory}/{name}/**/*.parquet')"


# A stack's functions, root first, no more than the rule about roots wants. Null where one has no name.
rows = duckdb.sql(
    f"""
    with
        own as (
            select user_stack_id as id, count(*) as waits, sum(blocked_ns) as blocked_ns
            from {table("waits")}
            where list_contains({pids}, tgid) and thread_kind <> 'kernel'
            group by all
        ),
        roots as (
            select
                stack_id as id,
                array_agg(function order by position desc) as functions
            from {table("frames")}
            where stack_id in (select id from own) and module is distinct from '[python]'
            group by all
        )
    select own.waits, own.blocked_ns, stacks."end", roots.functions[:2] as functions
    from own
    left join {table("stacks")} as stacks using (id)
    left join roots using (id)
    """
).fetchall()
json.dump(
    [dict(zip(("waits", "blocked_ns", "end", "root"), row)) for row in rows],
    sys.stdout,
)
