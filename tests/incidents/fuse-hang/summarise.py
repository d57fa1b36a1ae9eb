"""Reads a report that never comes."""

import sys


def read_report(path):
    with open(path, "rb", buffering=0) as file:
        file.read(4096)


def main():
    print("ready", flush=True)
    if len(sys.argv) > 2:
        # Whoever looks on says when.
        sys.stdin.readline()
    read_report(sys.argv[1])


main()
