"""A server on a Unix socket whose answers wait for something that only it knows."""

import socketserver
import sys
import time


LOG = open(sys.argv[2], "a")


def reserve_stock():
    begin = time.monotonic()
    time.sleep(0.6)
    print("reserve_stock", time.monotonic() - begin, file=LOG, flush=True)


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        while self.rfile.readline().strip():
            pass
        reserve_stock()
        self.wfile.write(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok")


def main():
    server = socketserver.UnixStreamServer(sys.argv[1], Handler)
    print("ready", flush=True)
    server.serve_forever()


main()
