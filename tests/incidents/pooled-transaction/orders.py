"""A job that keeps a transaction open, and with it the pooler's connection, while it asks a payment service."""

import sys
import time

import psycopg2


def call_payment_api():
    time.sleep(0.3)


def main():
    connection = psycopg2.connect(host=sys.argv[1], port=6432, dbname="postgres", user="postgres")
    print("ready", flush=True)
    while True:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            call_payment_api()
        connection.commit()
        time.sleep(0.02)


main()
