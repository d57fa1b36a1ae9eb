"""The application behind nginx: it computes for a while for each request, and logs how long."""

import http.server
import socketserver
import sys
import time


LOG = open(sys.argv[2], "a")


def render_invoice():
    total = 0
    for line in range(1_500_000):
        total += line * line % 7
    return str(total).encode()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        begin = time.monotonic()
        body = render_invoice()
        print("render_invoice", time.monotonic() - begin, file=LOG, flush=True)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self):
        return "unix"

    def log_message(self, *_):
        pass


def main():
    server = socketserver.UnixStreamServer(sys.argv[1], Handler)
    print("ready", flush=True)
    server.serve_forever()


main()
