"""A shop's checkout: threads that take from the stock, and log how long that takes."""

import sys
import threading
import time

import psycopg2


def checkout(connection, product):
    with connection.cursor() as cursor:
        cursor.execute("UPDATE product SET stock = stock - 1 WHERE id = %s", (product,))


def sell(host, product, log):
    connection = psycopg2.connect(host=host, dbname="postgres", user="postgres")
    connection.autocommit = True
    while True:
        begin = time.monotonic()
        checkout(connection, product)
        print("UPDATE", time.monotonic() - begin, file=log, flush=True)
        time.sleep(0.05)


def main():
    host, log, clients = sys.argv[1], open(sys.argv[2], "a"), int(sys.argv[3])
    threads = [threading.Thread(target=sell, args=(host, 1, log)) for _ in range(clients - 1)]
    for thread in threads:
        thread.start()
    print("ready", flush=True)
    sell(host, 1, log)


main()
