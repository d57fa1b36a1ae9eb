"""A worker that makes thumbnails, and logs how long each takes."""

import sys
import time


def make_thumbnail():
    total = 0
    for pixel in range(200_000):
        total += pixel * pixel % 7
    return total


def main():
    log = open(sys.argv[1], "a")
    print("ready", flush=True)
    while True:
        begin = time.monotonic()
        make_thumbnail()
        print("thumbnail", time.monotonic() - begin, file=log, flush=True)


main()
