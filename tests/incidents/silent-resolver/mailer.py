"""A mailer that looks a host up for each mail, and logs how long that takes."""

import socket
import sys
import time


def find_mail_server():
    try:
        socket.getaddrinfo("mail.shop.test", 25)
    except socket.gaierror:
        pass


def main():
    log = open(sys.argv[1], "a")
    print("ready", flush=True)
    while True:
        begin = time.monotonic()
        find_mail_server()
        print("lookup", time.monotonic() - begin, file=log, flush=True)


main()
