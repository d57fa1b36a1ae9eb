# A loop that polls for 20 ms at most, again and again, for its client and for a worker. Each is a process with that
# name. Says `ready`.
#
#     ticking_loop.py worker       the worker tells the loop each 90 ms that it is done: then the loop answers
#     ticking_loop.py timeouts     the loop answers after four timeouts, whatever the worker says
#
# It is how a replica of PostgreSQL confirms what it has applied.

import os
import select
import sys
import time

MODE = sys.argv[1]
TICK_MS = 20


def apply_changes():
    time.sleep(0.09)


def work(to_loop):
    while True:
        apply_changes()
        os.write(to_loop, b"d")


def run_loop(from_client, to_client, from_worker):
    poll = select.poll()
    poll.register(from_client, select.POLLIN)
    poll.register(from_worker, select.POLLIN)
    asked, timeouts = False, 0
    while True:
        ready = [fd for fd, _ in poll.poll(TICK_MS)]
        timeouts += not ready
        is_done = timeouts >= 4 if MODE == "timeouts" else from_worker in ready
        if from_client in ready:
            os.read(from_client, 1)
            asked, timeouts = True, 0
            continue
        if from_worker in ready:
            os.read(from_worker, 1)
        if asked and is_done:
            asked = False
            os.write(to_client, b"a")


def ask(to_loop, from_loop):
    while True:
        os.write(to_loop, b"q")
        os.read(from_loop, 1)


def fork(name, run, *files):
    pid = os.fork()
    if pid == 0:
        with open("/proc/self/comm", "w") as comm:
            comm.write(name)
        os.close(named[0])
        os.write(named[1], b"n")
        run(*files)
        os._exit(0)
    return pid


questions, answers, news, named = os.pipe(), os.pipe(), os.pipe(), os.pipe()
pids = [
    fork("client", ask, questions[1], answers[0]),
    fork("loop", run_loop, questions[0], answers[1], news[0]),
    fork("worker", work, news[1]),
]
for _ in pids:
    os.read(named[0], 1)
print("ready", flush=True)
for pid in pids:
    os.waitpid(pid, 0)
