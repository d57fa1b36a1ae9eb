"""A service with a pool of four threads: each job asks a slow backend, and the other requests queue."""

import socket
import socketserver
import sys
from concurrent.futures import ThreadPoolExecutor

POOL = ThreadPoolExecutor(4, thread_name_prefix="pool")
BACKEND = sys.argv[2]


def fetch_price():
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(BACKEND)
        connection.sendall(b"price?\n")
        return connection.recv(64)


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        while self.rfile.readline().strip():
            pass
        price = POOL.submit(fetch_price).result()
        self.wfile.write(b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n" % len(price) + price)


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 64


def main():
    server = Server(sys.argv[1], Handler)
    print("ready", flush=True)
    server.serve_forever()


main()
