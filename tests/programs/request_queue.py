# A server with one thread, an event loop, and its clients, a process of their own. Says `ready`.
#
#     request_queue.py LOG queue|later|none
#
# A request takes 1 ms of the server's work. Every 300 ms one takes 40 ms (`queue`), in which the others lie in their
# sockets, or is put aside for 40 ms while others are served (`later`). LOG gets a line for each request, in
# nanoseconds of CLOCK_MONOTONIC: who it was of, when it was asked, when the server began with it, when it was answered.

import os
import selectors
import socket
import struct
import sys
import threading
import time

LOG, MODE = sys.argv[1:3]
CLIENTS = 3
USUAL = 0.001
SLOW = 0.040
EVERY = 0.300


def work(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def look_up():
    work(USUAL)


def make_report():
    work(SLOW)


def serve(listener):
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    later = []
    while True:
        timeout = None
        if later:
            timeout = max(0, later[0][0] - time.monotonic())
        for key, _ in selector.select(timeout):
            if key.fileobj is listener:
                connection = listener.accept()[0]
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                selector.register(connection, selectors.EVENT_READ)
                continue
            connection = key.fileobj
            request = connection.recv(1)
            if not request:
                return
            begun = struct.pack("q", time.monotonic_ns())
            if request == b"r" and MODE == "later":
                later.append((time.monotonic() + SLOW, connection, begun))
                continue
            make_report() if request == b"r" else look_up()
            connection.sendall(begun)
        while later and later[0][0] <= time.monotonic():
            _, connection, begun = later.pop(0)
            connection.sendall(begun)


def ask(address, log, name, request, pause):
    connection = socket.create_connection(address)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while True:
        asked = time.monotonic_ns()
        connection.sendall(request)
        begun = struct.unpack("q", connection.recv(8))[0]
        os.write(log, b"%s %d %d %d\n" % (name, asked, begun, time.monotonic_ns()))
        time.sleep(pause)


listener = socket.create_server(("127.0.0.1", 0))
if os.fork() == 0:
    log = os.open(LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    address = listener.getsockname()
    listener.close()
    for n in range(CLIENTS):
        threading.Thread(target=ask, args=(address, log, b"usual", b"f", 0.004 + n * 0.001)).start()
    if MODE != "none":
        threading.Thread(target=ask, args=(address, log, b"report", b"r", EVERY)).start()
    threading.Event().wait()

threading.Thread(target=serve, args=(listener,), daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
