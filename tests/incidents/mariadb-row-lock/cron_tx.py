"""A job that settles orders: it calls a payment service while its transaction holds a row."""

import sys
import time

import pymysql


def call_payment_api():
    time.sleep(0.4)


def settle_order(connection):
    with connection.cursor() as cursor:
        cursor.execute("UPDATE product SET stock = stock - 1 WHERE id = 1")
        call_payment_api()
    connection.commit()


def main():
    connection = pymysql.connect(unix_socket=sys.argv[1], user="root", database="shop")
    print("ready", flush=True)
    while True:
        settle_order(connection)
        time.sleep(0.02)


main()
