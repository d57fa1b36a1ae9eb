"""A name server that is up, and never answers."""

import socket
import sys


def ignore_queries(server):
    while True:
        server.recv(512)


def main():
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((sys.argv[1], 53))
    print("ready", flush=True)
    ignore_queries(server)


main()
