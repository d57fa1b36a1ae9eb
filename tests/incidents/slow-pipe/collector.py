"""Collects events, and writes them to a pipe. It logs how long each write takes."""

import os
import sys
import time


def emit_event(pipe):
    os.write(pipe, b"event\n" * 2000)


def main():
    pipe, log = os.open(sys.argv[1], os.O_WRONLY), open(sys.argv[2], "a")
    print("ready", flush=True)
    while True:
        begin = time.monotonic()
        emit_event(pipe)
        print("write", time.monotonic() - begin, file=log, flush=True)


main()
