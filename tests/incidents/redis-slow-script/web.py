"""A web application that reads a session from redis for each request, and logs how long that takes."""

import socket
import sys
import time


def load_session(stream):
    stream.write(b"*2\r\n$3\r\nGET\r\n$7\r\nsession\r\n")
    stream.flush()
    size = int(stream.readline()[1:])
    return stream.read(size + 2)


def main():
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(sys.argv[1])
    stream = connection.makefile("rwb")
    stream.write(b"*3\r\n$3\r\nSET\r\n$7\r\nsession\r\n$5\r\nhello\r\n")
    stream.flush()
    stream.readline()
    log = open(sys.argv[2], "a")
    print("ready", flush=True)
    while True:
        begin = time.monotonic()
        load_session(stream)
        print("GET", time.monotonic() - begin, file=log, flush=True)
        time.sleep(0.005)


main()
