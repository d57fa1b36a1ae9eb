"""A backup: it keeps the stock's lock while it uploads the archive."""

import fcntl
import sys
import time


def upload_archive():
    time.sleep(0.6)


def back_up(path):
    with open(path, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        upload_archive()


def main():
    print("ready", flush=True)
    while True:
        back_up(sys.argv[1])
        time.sleep(0.02)


main()
