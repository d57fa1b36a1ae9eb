"""A server that keeps its connections open, and writes the head and the body of an answer apart.

TCP holds the body back until the head is acknowledged (Nagle's algorithm), and the client's kernel
acknowledges late. TCP_NODELAY, or one write, would spare both the wait."""

import http.server
import sys


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "3")
        self.end_headers()
        self.wfile.write(b"42\n")

    def log_message(self, *_):
        pass


def main():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with open(sys.argv[1], "w") as port:
        port.write(str(server.server_port))
    print("ready", flush=True)
    server.serve_forever()


main()
