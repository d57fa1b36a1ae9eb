"""Processes that have the lock of one SQLite database by turns, for a known time each, one that wants to write now
and then, and one that has the lock of another database. They write who had it when. Says `ready`.

    sqlite_holders.py DIRECTORY LOG rollback|wal MILLISECONDS...
"""

import os
import sqlite3
import sys
import threading
import time

directory, log, journal, *times = sys.argv[1:]
times = [int(ms) / 1000 for ms in times]
log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
modes = {"rollback": "delete", "wal": "wal"}


def connect(name):
    path = os.path.join(directory, name)
    connection = sqlite3.connect(path, timeout=60, isolation_level=None)
    # Writes take no time, so that a lock is had for as long as its holder says.
    connection.execute("PRAGMA synchronous=off")
    return connection


def create(name):
    connection = connect(name)
    connection.execute(f"PRAGMA journal_mode={modes[journal]}")
    connection.execute("CREATE TABLE row (at REAL)")
    connection.close()


def write(name, begun):
    os.write(log, b"%s %d %d\n" % (name.encode(), begun, time.monotonic_ns()))


def hold(connection, name, length):
    connection.execute("BEGIN IMMEDIATE")
    begun = time.monotonic_ns()
    time.sleep(length)
    # Not after it: another one may have it by then.
    write(name, begun)
    connection.execute("COMMIT")


def begin(name):
    with open("/proc/self/comm", "w") as comm:
        comm.write(name)
    ready.write(b".")
    ready.flush()


def holds(nth):
    connection = connect("shared")
    begin(f"holder-{nth}")
    # Which of its threads has the lock is known by what that one does.
    threading.Thread(target=sys.stdin.read, daemon=True).start()
    while turns[nth][0].read(1):
        hold(connection, f"holder-{nth}", times[nth])
        if nth + 1 == len(times):
            # Whoever waits gets it now, at the latest as it next asks.
            time.sleep(0.12)
        turns[(nth + 1) % len(times)][1].write(b".")


def wants():
    connection = connect("shared")
    begin("wants")
    while True:
        begun = time.monotonic_ns()
        connection.execute("INSERT INTO row VALUES (1)")
        write("wants", begun)
        time.sleep(0.001)


def stands_by():
    connection = connect("other")
    begin("stands-by")
    while True:
        hold(connection, "stands-by", 0.2)


def pipe():
    reading, writing = os.pipe()
    return os.fdopen(reading, "rb", 0), os.fdopen(writing, "wb", 0)


create("shared")
create("other")
turns = [pipe() for _ in times]
begun, ready = pipe()
roles = [lambda nth=nth: holds(nth) for nth in range(len(times))] + [wants, stands_by]
for role in roles:
    if os.fork() == 0:
        role()
for _ in roles:
    begun.read(1)
turns[0][1].write(b".")
print("ready", flush=True)
sys.stdin.read()
