"""Clients of an HTTP server on a Unix socket or on TCP, each in a thread; they log how long an answer takes.

http_clients.py ADDRESS LOG CLIENTS: ADDRESS is a path or HOST:PORT."""

import socket
import sys
import threading
import time


def ask(address):
    if address.startswith("/"):
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(address)
    else:
        host, port = address.split(":")
        connection = socket.create_connection((host, int(port)))
    with connection:
        connection.sendall(b"GET / HTTP/1.0\r\nHost: shop\r\n\r\n")
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
    assert b" 200 " in answer.split(b"\r\n")[0], answer


def browse(address, log):
    while True:
        begin = time.monotonic()
        ask(address)
        print("GET", time.monotonic() - begin, file=log, flush=True)
        time.sleep(0.01)


def main():
    address, log, clients = sys.argv[1], open(sys.argv[2], "a"), int(sys.argv[3])
    for _ in range(clients - 1):
        threading.Thread(target=browse, args=(address, log)).start()
    print("ready", flush=True)
    browse(address, log)


main()
