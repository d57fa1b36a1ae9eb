"""Clients with one connection each, as many as are asked for; each sleeps for so many ms, sends so many requests at
once (pipelining), and reads the answers. Says `ready` after the first answers."""

import socket
import sys
import threading
import time

port, path, pause_ms = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])
at_once, clients = int(sys.argv[4]), int(sys.argv[5])
requests = f"GET {path} HTTP/1.1\r\nHost: loop\r\n\r\n".encode() * at_once
barrier = threading.Barrier(clients)


def read_answer(answers):
    status = answers.readline().split()[1]
    assert status == b"200", status
    headers = dict(line.lower().split(b": ", 1) for line in iter(answers.readline, b"\r\n"))
    answers.read(int(headers[b"content-length"]))


def ask(connection, answers):
    connection.sendall(requests)
    for _ in range(at_once):
        read_answer(answers)


def run(number):
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    answers = connection.makefile("rb")
    ask(connection, answers)
    if barrier.wait() == 0:
        print("ready", flush=True)
    while True:
        time.sleep(pause_ms / 1000)
        ask(connection, answers)


for number in range(1, clients):
    threading.Thread(target=run, args=[number], daemon=True).start()
run(0)
