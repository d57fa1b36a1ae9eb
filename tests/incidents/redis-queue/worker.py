"""A worker that waits at a list of redis for its next order, and logs how long that takes."""

import socket
import sys
import time


def next_order(stream):
    stream.write(b"*3\r\n$5\r\nBLPOP\r\n$6\r\norders\r\n$1\r\n0\r\n")
    stream.flush()
    assert stream.readline() == b"*2\r\n"
    for _ in range(2):
        size = int(stream.readline()[1:])
        value = stream.read(size + 2)
    return value


def main():
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(sys.argv[1])
    stream = connection.makefile("rwb")
    log = open(sys.argv[2], "a")
    print("ready", flush=True)
    while True:
        begin = time.monotonic()
        next_order(stream)
        print("order", time.monotonic() - begin, file=log, flush=True)


main()
