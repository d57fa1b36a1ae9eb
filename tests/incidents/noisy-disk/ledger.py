"""A ledger: it appends an entry, and makes sure that it is on the disk. It logs how long that takes."""

import os
import sys
import time


def commit_entry(file):
    os.write(file, b"entry\n" * 100)
    os.fsync(file)


def main():
    file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    log = open(sys.argv[2], "a")
    print("ready", flush=True)
    while True:
        begin = time.monotonic()
        commit_entry(file)
        print("fsync", time.monotonic() - begin, file=log, flush=True)


main()
