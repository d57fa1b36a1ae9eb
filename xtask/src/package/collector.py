"""A server of names that says 127.0.0.1 to everything, and a collector there that keeps what it is sent.

python3 collector.py FILE
"""

import http.server
import socket
import sys
import threading


def answer_names(server):
    while True:
        question, asker = server.recvfrom(512)
        end = question.index(0, 12) + 5
        wants_ipv4 = question[end - 4 : end - 2] == b"\0\1"
        head = question[:2] + b"\x81\x80\0\1" + (b"\0\1" if wants_ipv4 else b"\0\0") + bytes(4)
        record = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4\x7f\0\0\1"
        server.sendto(head + question[12:end] + (record if wants_ipv4 else b""), asker)


class Collector(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with open(sys.argv[1], "ab") as kept:
            kept.write(body)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
names.bind(("127.0.0.1", 53))
threading.Thread(target=answer_names, args=(names,), daemon=True).start()
http.server.HTTPServer(("127.0.0.1", 4318), Collector).serve_forever()
