"""A server whose answers take some 15 ms of computing, and longer on slower machines."""

import socketserver
import sys


def render_page():
    total = 0
    for line in range(300_000):
        total += line * line % 7
    return str(total).encode()


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        while self.rfile.readline().strip():
            pass
        page = render_page()
        self.wfile.write(b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n" % len(page) + page)


def main():
    server = socketserver.UnixStreamServer(sys.argv[1], Handler)
    print("ready", flush=True)
    server.serve_forever()


main()
