"""A web application that reads a session from redis for each request, and says when it has read the first."""

import socket
import sys
import time


def load_session(stream):
    stream.write(b"*2\r\n$3\r\nGET\r\n$7\r\nsession\r\n")
    stream.flush()
    return stream.readline()


def main():
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(sys.argv[1])
    stream = connection.makefile("rwb")
    load_session(stream)
    print("ready", flush=True)
    while True:
        load_session(stream)
        time.sleep(0.005)


main()
