"""An import: it holds the database's lock while it fetches the prices."""

import sqlite3
import sys
import time


def fetch_prices():
    time.sleep(0.5)


def import_prices(connection):
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("UPDATE product SET price = price + 1")
    fetch_prices()
    connection.execute("COMMIT")


def main():
    connection = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)
    connection.execute("CREATE TABLE IF NOT EXISTS product (id INTEGER PRIMARY KEY, price INTEGER)")
    connection.execute("CREATE TABLE IF NOT EXISTS booking (at REAL)")
    connection.execute("INSERT INTO product (price) VALUES (1)")
    print("ready", flush=True)
    while True:
        import_prices(connection)
        time.sleep(0.05)


main()
