"""A service of two threads: one answers, the other computes a report and keeps the interpreter's lock."""

import socketserver
import sys
import threading


def build_report():
    while True:
        total = 0
        for row in range(1_000_000):
            total += row * row % 7


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        self.answer()

    def answer(self):
        while self.rfile.readline().strip():
            pass
        self.wfile.write(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n")
        self.wfile.write(b"ok")


def main():
    server = socketserver.UnixStreamServer(sys.argv[1], Handler)
    threading.Thread(target=build_report, daemon=True).start()
    print("ready", flush=True)
    server.serve_forever()


main()
