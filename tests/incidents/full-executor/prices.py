"""The backend: it has a price for whoever asks, after a while, and it logs how long that took."""

import socketserver
import sys
import time


LOG = open(sys.argv[2], "a")


def look_up_price():
    begin = time.monotonic()
    time.sleep(0.2)
    print("look_up_price", time.monotonic() - begin, file=LOG, flush=True)
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
