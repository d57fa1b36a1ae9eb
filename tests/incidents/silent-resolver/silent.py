"""A name server that is up, and never answers. It counts the queries in a log."""

import socket
import sys


def ignore_queries(server, log):
    while True:
        server.recv(512)
        print("query", file=log, flush=True)


def main():
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((sys.argv[1], 53))
    log = open(sys.argv[2], "a")
    print("ready", flush=True)
    ignore_queries(server, log)


main()
