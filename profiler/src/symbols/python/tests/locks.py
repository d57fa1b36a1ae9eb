"""Threads that hold locks and wait for them, and say which and how: a line for each thread."""

import sys
import threading
import time

lines = []
ready = threading.Semaphore(0)


def say(role):
    lines.append(f"{role} {threading.get_native_id()}")
    ready.release()


def sleeps():
    while True:
        time.sleep(3600)


vault, ledger, safe, count = (threading.Lock() for _ in range(4))
book = threading.RLock()
free = threading.Lock()
both = threading.Barrier(2)
taken = threading.Barrier(3)
never = threading.Event()


def deadlocked(role, first, second):
    say(role)
    with first:
        both.wait()
        with second:
            pass


def holds(role, lock):
    with lock:
        say(role)
        taken.wait()
        sleeps()


def holds_without_block(role, lock):
    lock.acquire()
    say(role)
    taken.wait()
    sleeps()


def wants(role, lock):
    say(role)
    lock.acquire()


def had_it(role, lock):
    """What it had before is still in its frame's memory."""
    with lock:
        pass
    try:
        with lock:
            pass
    finally:
        say(role)
        sleeps()


def wants_its_own(role, lock):
    with lock:
        say(role)
        with lock:
            pass


def wants_below(role, lock):
    """In a function of another one that is in a block of another lock."""
    with free:
        wants(role, lock)


def waits_for_condition(role, lock, condition):
    """It is in a block of the lock, and does not have it."""
    with lock:
        say(role)
        condition.wait()


def holds_condition(role, condition):
    with condition:
        say(role)
        sleeps()


def waits_for_event(role):
    say(role)
    never.wait()


def start(*arguments):
    threading.Thread(target=arguments[0], args=arguments[1:], daemon=True).start()
    ready.acquire()


start(had_it, "earlier", safe)
start(had_it, "earlier_too", vault)
start(deadlocked, "left", vault, ledger)
start(deadlocked, "right", ledger, vault)
start(holds, "holder", safe)
start(holds_without_block, "owner", book)
taken.wait()
start(wants, "waiter", safe)
start(wants_below, "reader", book)
start(wants_its_own, "selfish", count)
start(waits_for_event, "idle")
shared = threading.Lock()
condition = threading.Condition(shared)
start(waits_for_condition, "signalled", shared, condition)
start(holds_condition, "signaller", condition)
start(wants, "behind", shared)
unknown = threading.Lock()
unknown.acquire()
start(wants, "unlucky", unknown)
print("\n".join(lines), flush=True)
print("end", flush=True)
sys.stdin.readline()
