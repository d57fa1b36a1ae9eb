"""A dashboard that has redis run a script, again and again."""

import socket
import sys
import time


def command(stream, *words):
    parts = [b"*%d\r\n" % len(words)]
    parts += [b"$%d\r\n%s\r\n" % (len(word), word) for word in words]
    stream.write(b"".join(parts))
    stream.flush()
    return stream.readline()


def main():
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(sys.argv[1])
    stream = connection.makefile("rwb")
    script = open(sys.argv[2], "rb").read()
    print("ready", flush=True)
    while True:
        assert command(stream, b"EVAL", script, b"0").startswith(b":")
        time.sleep(0.02)


main()
