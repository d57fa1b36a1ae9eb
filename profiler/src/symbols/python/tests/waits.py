"""Threads that wait in known places. For each line on standard input the program prints where they
are: a line `thread TID EXPECTED` for each, EXPECTED being the function that it is to wait in, then a
line `frame NAME LINE FILE` for each of its frames, leaf first, and at last a line `end`."""

import asyncio
import sys
import threading
import time

gate = threading.Lock()
gate.acquire()
expected = {}


class Account:
    class Ledger:
        def settle(self):
            def innermost():
                gate.acquire()

            innermost()


def nested():
    Account.Ledger().settle()


def leaves():
    yield 1
    gate.acquire()
    yield 2


def branches():
    yield from leaves()


def generates():
    for _ in branches():
        pass


def waiting_key(item):
    gate.acquire()
    return item


def calls_back():
    sorted([3, 1, 2], key=lambda item: waiting_key(item))


async def awaited():
    await asyncio.sleep(0)
    gate.acquire()


async def awaits():
    return await awaited()


def runs_coroutine():
    asyncio.run(awaits())


def idle_loop():
    async def forever():
        await asyncio.Event().wait()

    asyncio.run(forever())


def sleeps():
    time.sleep(100_000)


class Constructed:
    def __init__(self, waits):
        if waits:
            gate.acquire()


def constructs():
    # Often enough for the interpreter to call it in its own way.
    for round in range(1001):
        Constructed(round == 1000)


def several_lines():
    first = [
        1,
        2,
    ]

    return sum(
        first,
        min(
            3,
            gate.acquire(),
        ),
    )


def cleans_up():
    try:
        with threading.Lock():
            raise ValueError(
                "for the handler"
            )
    except ValueError:
        for _ in range(3):
            gate.acquire()
    finally:
        pass


def deep(levels):
    if levels > 0:
        return deep(levels - 1)
    gate.acquire()


def goes_deep():
    deep(100)


def grüßt():
    gate.acquire()


def 名前を待つ():
    grüßt()


def 𐎠𐎡():
    名前を待つ()


def far_apart():
    lines = ["def far():", "    a = 1"] + [""] * 1000 + ["    gate.acquire()", ""]
    space = {"gate": gate}
    exec(compile("\n".join(lines), "<weit weg ß 名 𐎠>", "exec"), space)
    space["far"]()


def no_lines_between():
    lines = ["def call(a, b): pass", "def far():", "    call("] + [""] * 200
    lines += ["        1,"] + [""] * 200 + ["        gate.acquire())", ""]
    space = {"gate": gate}
    exec(compile("\n".join(lines), "<between>", "exec"), space)
    space["far"]()


def compares():
    class Value:
        def __eq__(self, other):
            gate.acquire()

    assert Value() == Value()


PLACES = [
    (nested, "innermost"),
    (generates, "leaves"),
    (calls_back, "waiting_key"),
    (runs_coroutine, "awaited"),
    (idle_loop, "select"),
    (sleeps, "sleeps"),
    (constructs, "__init__"),
    (several_lines, "several_lines"),
    (cleans_up, "cleans_up"),
    (goes_deep, "deep"),
    (𐎠𐎡, "grüßt"),
    (far_apart, "far"),
    (no_lines_between, "far"),
    (compares, "__eq__"),
]


def name(code):
    return getattr(code, "co_qualname", code.co_name)


def report(threads):
    frames = sys._current_frames()
    for thread, waits_in in threads:
        print("thread", thread.native_id, waits_in)
        frame = frames[thread.ident]
        while frame:
            print("frame", name(frame.f_code), frame.f_lineno, frame.f_code.co_filename)
            frame = frame.f_back
    print("end", flush=True)


def main():
    sys.stdout.reconfigure(encoding="utf-8")
    threads = []
    for place, waits_in in PLACES:
        thread = threading.Thread(target=place, daemon=True)
        thread.start()
        threads.append((thread, waits_in))
    for _ in sys.stdin:
        report(threads)


main()
