"""Threads that block in many ways, each below functions of its own. Says `ready` when all of them have begun."""

import os
import queue
import select
import subprocess
import threading
import time

never, _other_end = os.pipe()
held = threading.Lock()
held.acquire()
items = queue.Queue()
condition = threading.Condition()


def takes_a_lock():
    held.acquire()


def takes_from_a_queue():
    items.get()


def takes_from_a_queue_in_time():
    items.get(timeout=86400)


def waits_for_a_condition():
    with condition:
        condition.wait()


def sleeps():
    time.sleep(86400)


def selects():
    select.select([never], [], [])


def reads():
    os.read(never, 1)


def waits_for_a_child():
    with subprocess.Popen(["sleep", "86400"]) as child:
        child.wait()


def sorts():
    # From Python into C and back.
    sorted([1, 2], key=lambda _: os.read(never, 1))


def nested(depth):
    if depth:
        nested(depth - 1)
    else:
        os.read(never, 1)


ways = [
    takes_a_lock,
    takes_from_a_queue,
    takes_from_a_queue_in_time,
    waits_for_a_condition,
    sleeps,
    selects,
    reads,
    waits_for_a_child,
    sorts,
    lambda: nested(50),
]
begun = threading.Barrier(len(ways) + 1)


def thread(blocks):
    begun.wait()
    blocks()


for way in ways:
    threading.Thread(target=thread, args=(way,), daemon=True).start()
begun.wait()
print("ready", flush=True)
os.read(never, 1)
