"""A booking desk: it writes each booking to the database, and logs how long that takes."""

import sqlite3
import sys
import time


def save_booking(connection):
    connection.execute("INSERT INTO booking (at) VALUES (?)", (time.time(),))


def main():
    connection = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)
    log = open(sys.argv[2], "a")
    print("ready", flush=True)
    while True:
        begin = time.monotonic()
        save_booking(connection)
        print("INSERT", time.monotonic() - begin, file=log, flush=True)
        time.sleep(0.2)


main()
