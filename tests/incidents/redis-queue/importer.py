"""An importer that takes long to find the next order, and appends it to a list of redis. It logs
how long that takes."""

import socket
import sys
import time


def read_feed():
    time.sleep(0.15)


def main():
    log = open(sys.argv[2], "a")
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(sys.argv[1])
    stream = connection.makefile("rwb")
    print("ready", flush=True)
    while True:
        begin = time.monotonic()
        read_feed()
        print("read_feed", time.monotonic() - begin, file=log, flush=True)
        stream.write(b"*3\r\n$5\r\nRPUSH\r\n$6\r\norders\r\n$3\r\n812\r\n")
        stream.flush()
        assert stream.readline().startswith(b":")


main()
