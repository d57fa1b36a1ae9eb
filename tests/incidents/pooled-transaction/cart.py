"""A shop's carts: it looks one up now and then, and logs how long that takes."""

import sys
import time

import psycopg2


def load_cart(connection):
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")


def main():
    connection = psycopg2.connect(host=sys.argv[1], port=6432, dbname="postgres", user="postgres")
    connection.autocommit = True
    log = open(sys.argv[2], "a")
    print("ready", flush=True)
    while True:
        begin = time.monotonic()
        load_cart(connection)
        print("SELECT", time.monotonic() - begin, file=log, flush=True)
        time.sleep(0.01)


main()
