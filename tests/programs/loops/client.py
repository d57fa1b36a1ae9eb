"""A client with one connection, which sleeps for so many ms before each request. Says `ready` after the first."""

import http.client
import sys
import time

port, path, pause_ms = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])
connection = http.client.HTTPConnection("127.0.0.1", port)


def ask():
    connection.request("GET", path)
    response = connection.getresponse()
    response.read()
    assert response.status == 200, response.status


ask()
print("ready", flush=True)
while True:
    time.sleep(pause_ms / 1000)
    ask()
