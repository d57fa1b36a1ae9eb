# An event loop that asks a server through four connections, one request at a time on each, as pgbench does. The server
# forks a process for each connection, as PostgreSQL does. Says `ready`.
#
#     loop_client.py LOG
#
# An answer takes 2 ms, and every fiftieth one 30 ms. LOG gets a line for each request, in nanoseconds of
# CLOCK_MONOTONIC: when it was asked, when it was answered.

import os
import selectors
import socket
import sys
import time

LOG = sys.argv[1]
CONNECTIONS = 4
USUAL = 0.002
SLOW = 0.030
ONE_IN = 50


def look_up():
    time.sleep(USUAL)


def make_report():
    time.sleep(SLOW)


def answer(connection):
    answered = 0
    try:
        while connection.recv(1):
            answered += 1
            make_report() if answered % ONE_IN == 0 else look_up()
            connection.sendall(b"a")
    except ConnectionError:
        pass  # The client has ended.


def serve(listener):
    # Each process ends with its client.
    for _ in range(CONNECTIONS):
        connection = listener.accept()[0]
        if os.fork() == 0:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            answer(connection)
            os._exit(0)
        connection.close()
    for _ in range(CONNECTIONS):
        os.wait()


listener = socket.create_server(("127.0.0.1", 0))
if os.fork() == 0:
    serve(listener)
    sys.exit(0)
address = listener.getsockname()
listener.close()
log = open(LOG, "w", buffering=1)
selector = selectors.DefaultSelector()
asked = {}


def ask(connection):
    asked[connection] = time.monotonic_ns()
    connection.sendall(b"q")


for _ in range(CONNECTIONS):
    connection = socket.create_connection(address)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    selector.register(connection, selectors.EVENT_READ)
    ask(connection)
print("ready", flush=True)
while True:
    for key, _ in selector.select():
        key.fileobj.recv(1)
        print(asked[key.fileobj], time.monotonic_ns(), file=log)
        ask(key.fileobj)
