"""A client that asks through one connection, and logs how long an answer takes."""

import http.client
import sys
import time


def count_stock(connection):
    connection.request("GET", "/")
    return connection.getresponse().read()


def main():
    connection = http.client.HTTPConnection("127.0.0.1", int(open(sys.argv[1]).read()))
    log = open(sys.argv[2], "a")
    print("ready", flush=True)
    while True:
        begin = time.monotonic()
        count_stock(connection)
        print("GET", time.monotonic() - begin, file=log, flush=True)
        time.sleep(0.005)


main()
