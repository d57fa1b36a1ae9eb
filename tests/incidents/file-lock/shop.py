"""A shop that takes the stock's lock for each order, and logs how long that takes."""

import fcntl
import sys
import time


def take_from_stock(path):
    with open(path, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)


def main():
    log = open(sys.argv[2], "a")
    print("ready", flush=True)
    while True:
        begin = time.monotonic()
        take_from_stock(sys.argv[1])
        print("order", time.monotonic() - begin, file=log, flush=True)
        time.sleep(0.02)


main()
