"""A server on TCP that computes a price for each request."""

import socketserver
import sys


def price_basket():
    total = 0
    for item in range(2_000_000):
        total += item * item % 7
    return total


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        while self.rfile.readline().strip():
            pass
        price = str(price_basket()).encode()
        self.wfile.write(b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n" % len(price) + price)


def main():
    socketserver.TCPServer.allow_reuse_address = True
    server = socketserver.TCPServer((sys.argv[1], int(sys.argv[2])), Handler)
    print("ready", flush=True)
    server.serve_forever()


main()
