"""Threads that want locks of each other, or a lock that one of two has and sleeps with."""

import sys
import threading
import time

what, kind = sys.argv[1:]
make = {"lock": threading.Lock, "rlock": threading.RLock}[kind]
vault, ledger = make(), make()
both = threading.Barrier(2)
taken = threading.Event()


def move_left():
    with vault:
        both.wait()
        with ledger:
            raise SystemExit("it has both")


def move_right():
    with ledger:
        both.wait()
        with vault:
            raise SystemExit("it has both")


def export_left():
    with vault:
        taken.set()
        time.sleep(3600)


def export_right():
    with vault:
        taken.set()
        time.sleep(3600)


def rest():
    # It had the lock before, and so has what it had of it.
    with vault:
        pass
    time.sleep(3600)


def book_order():
    with vault:
        raise SystemExit("it has the lock")


def start(function):
    threading.Thread(target=function, daemon=True).start()


if what == "deadlock":
    start(move_left)
    start(move_right)
else:
    start(rest)
    time.sleep(0.1)
    start({"left": export_left, "right": export_right}[what])
    taken.wait()
    start(book_order)
time.sleep(0.3)
print("ready", flush=True)
threading.Event().wait()
