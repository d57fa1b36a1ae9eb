"""The backend: it has a price for whoever asks, after a while."""

import socketserver
import sys
import time


def look_up_price():
    time.sleep(0.2)
    return b"42"


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        self.rfile.readline()
        self.wfile.write(look_up_price())


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 64


def main():
    server = Server(sys.argv[1], Handler)
    print("ready", flush=True)
    server.serve_forever()


main()
