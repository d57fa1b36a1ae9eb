"""Three threads that have Python's lock in turn, for a known time each, one that wants it now and then, and one
that has nothing to do with it. They write who had it when. Says `ready`.

    gil_holders.py LIBRARY LOG sleeps_with_it|computes_with_it MICROSECONDS MICROSECONDS MICROSECONDS
"""

import ctypes
import os
import sys
import threading

library, log, what, *times = sys.argv[1:]
with_it, without_it = ctypes.PyDLL(library), ctypes.CDLL(library)
without_it.pauses.restype = ctypes.c_ulong
without_it.pauses.argtypes = [ctypes.c_ulong]
with_it.has_it.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_ulong]
hold = getattr(with_it, what)
hold.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_ulong]
log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
begun = threading.Semaphore(0)


def begin(name):
    with open(f"/proc/self/task/{threading.get_native_id()}/comm", "w") as comm:
        comm.write(name)
    begun.release()


def holds(name, us):
    begin(name)
    while True:
        hold(log, name.encode(), us)
        without_it.pauses(1000)


def wants():
    begin("wants")
    while True:
        wanted = without_it.pauses(2000)
        with_it.has_it(log, b"wants", wanted)


def stands_by():
    begin("stands-by")
    without_it.pauses(1 << 40)


threads = [threading.Thread(target=holds, args=[f"holder-{n}", int(us)]) for n, us in enumerate(times)]
threads += [threading.Thread(target=wants), threading.Thread(target=stands_by)]
for thread in threads:
    thread.start()
for _ in threads:
    begun.acquire()
print("ready", flush=True)
sys.stdin.read()
