"""Web threads share a pool of one database connection, which an export keeps while it uploads."""

import queue
import sqlite3
import sys
import threading
import time


class Pool:
    def __init__(self, path, size):
        self.free = queue.Queue()
        for _ in range(size):
            self.free.put(sqlite3.connect(path, check_same_thread=False, isolation_level=None))

    def acquire(self):
        return self.free.get()

    def release(self, connection):
        self.free.put(connection)


def upload_to_partner():
    time.sleep(0.5)


def export_orders(pool):
    connection = pool.acquire()
    begin = time.monotonic()
    connection.execute("SELECT count(*) FROM orders").fetchone()
    upload_to_partner()
    held = time.monotonic() - begin
    pool.release(connection)
    return held


def show_orders(pool):
    connection = pool.acquire()
    connection.execute("SELECT count(*) FROM orders").fetchone()
    pool.release(connection)


def serve(pool, log):
    while True:
        begin = time.monotonic()
        show_orders(pool)
        print("show_orders", time.monotonic() - begin, file=log, flush=True)
        time.sleep(0.01)


def main():
    sqlite3.connect(sys.argv[1]).execute("CREATE TABLE orders (id INTEGER)")
    pool, log = Pool(sys.argv[1], 1), open(sys.argv[2], "a")
    for _ in range(5):
        threading.Thread(target=serve, args=(pool, log)).start()
    exports = open(sys.argv[3], "a")
    print("ready", flush=True)
    while True:
        print("export_orders", export_orders(pool), file=exports, flush=True)
        time.sleep(0.01)


main()
