# A server with a thread for each connection, and its clients, a process of their own. Says `ready`.
#
#     requests.py LOG tcp|unix|pipe none|lock|service|timer|work
#
# Each request takes some 5 ms. One of eight meets what is named last: a lock that another thread has while it sleeps, a
# service that sleeps, a timer of the server's own. With `work`, there is one client, each request has work to do for 2
# ms, and one of fifty makes a report as well, which is work for 30 ms. LOG gets a line for each request: when it was asked and
# answered, in nanoseconds of CLOCK_MONOTONIC.

import os
import socket
import sys
import tempfile
import threading
import time

LOG, TRANSPORT, CAUSE = sys.argv[1:4]
CLIENTS = 1 if CAUSE == "work" else 4
SLOW_ONE_OF = 50 if CAUSE == "work" else 8
USUAL = 0.005
SLOW = 0.030
lock = threading.Lock()
wants_flush = threading.Event()


def flush_index():
    time.sleep(SLOW)


def compact():
    while True:
        wants_flush.wait()
        with lock:
            wants_flush.clear()
            has_lock.set()
            flush_index()


def slow_service(connection):
    while connection.recv(1):
        time.sleep(SLOW)
        connection.sendall(b"d")


def render_page():
    until = time.thread_time() + 0.002
    while time.thread_time() < until:
        pass


def make_report():
    until = time.thread_time() + SLOW
    while time.thread_time() < until:
        pass


def answer(is_slow, service):
    if CAUSE == "work":
        render_page()
        if is_slow:
            make_report()
        return
    time.sleep(USUAL)
    if not is_slow:
        return
    if CAUSE == "lock":
        has_lock.clear()
        wants_flush.set()
        has_lock.wait()
        with lock:
            pass
    elif CAUSE == "service":
        service.sendall(b"a")
        service.recv(1)
    elif CAUSE == "timer":
        time.sleep(SLOW)


def serve(read, write, service):
    while True:
        request = read()
        if not request:
            return
        answer(request == b"s", service)
        write(b"k")


def ask(read, write, log, number):
    n = number
    while True:
        n += 1
        asked = time.monotonic_ns()
        write(b"s" if n % SLOW_ONE_OF == 0 else b"f")
        read()
        os.write(log, b"%d %d\n" % (asked, time.monotonic_ns()))
        time.sleep(0.001)


def of_descriptors(read, write):
    return lambda: os.read(read, 1), lambda data: os.write(write, data)


def of_socket(connection):
    return lambda: connection.recv(1), connection.sendall


has_lock = threading.Event()
listener = None
pipes = [(os.pipe(), os.pipe()) for _ in range(CLIENTS)]
if TRANSPORT == "tcp":
    listener = socket.create_server(("127.0.0.1", 0))
elif TRANSPORT == "unix":
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(os.path.join(tempfile.mkdtemp(dir=os.path.dirname(LOG)), "server"))
    listener.listen()

services = [socket.socketpair() for _ in range(CLIENTS)]
if os.fork() == 0:
    for _, end in services:
        threading.Thread(target=slow_service, args=(end,)).start()
    threading.Event().wait()

if os.fork() == 0:
    log = os.open(LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for n in range(CLIENTS):
        if listener is None:
            read, write = of_descriptors(pipes[n][1][0], pipes[n][0][1])
        else:
            connection = socket.socket(listener.family)
            connection.connect(listener.getsockname())
            if TRANSPORT == "tcp":
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            read, write = of_socket(connection)
        threading.Thread(target=ask, args=(read, write, log, n * 2)).start()
    threading.Event().wait()

threading.Thread(target=compact, daemon=True).start()
for n in range(CLIENTS):
    if listener is None:
        read, write = of_descriptors(pipes[n][0][0], pipes[n][1][1])
    else:
        read, write = of_socket(listener.accept()[0])
    threading.Thread(target=serve, args=(read, write, services[n][0]), daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
