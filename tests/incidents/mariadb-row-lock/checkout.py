"""A shop's checkout, which takes from the stock and logs how long that takes."""

import sys
import time

import pymysql


def checkout(connection, product):
    with connection.cursor() as cursor:
        cursor.execute("UPDATE product SET stock = stock - 1 WHERE id = %s", (product,))


def main():
    connection = pymysql.connect(
        unix_socket=sys.argv[1], user="root", database="shop", autocommit=True
    )
    log = open(sys.argv[2], "a")
    print("ready", flush=True)
    while True:
        begin = time.monotonic()
        checkout(connection, 1)
        print("UPDATE", time.monotonic() - begin, file=log, flush=True)
        time.sleep(0.05)


main()
