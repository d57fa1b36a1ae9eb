"""A server on TCP that computes a price for each request, and logs how long that takes."""

import socketserver
import sys
import time


LOG = open(sys.argv[3], "a")


def price_basket():
    total = 0
    for item in range(2_000_000):
        total += item * item % 7
    return total


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        while self.rfile.readline().strip():
            pass
        begin = time.monotonic()
        price = str(price_basket()).encode()
        print("price_basket", time.monotonic() - begin, file=LOG, flush=True)
        self.wfile.write(b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n" % len(price) + price)


def main():
    socketserver.TCPServer.allow_reuse_address = True
    server = socketserver.TCPServer((sys.argv[1], int(sys.argv[2])), Handler)
    print("ready", flush=True)
    server.serve_forever()


main()
