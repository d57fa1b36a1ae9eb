"""A client that waits for what a maker prepares, and then has a pool's only thread do; a bystander has other
things done there. Says `ready`.

    executor.py PREPARATION JOB OTHER_JOB      each in milliseconds
"""

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

preparation, job, other_job = (float(time) / 1000 for time in sys.argv[1:])
wanted, done, begun = threading.Semaphore(0), threading.Semaphore(0), threading.Semaphore(0)


def begin(name):
    with open(f"/proc/self/task/{threading.get_native_id()}/comm", "w") as comm:
        comm.write(name)
    begun.release()


pool = ThreadPoolExecutor(1, initializer=begin, initargs=["pool"])


def does_job():
    time.sleep(job)
    done.release()


def waits_for_it():
    begin("client")
    while True:
        wanted.release()
        done.acquire()
        time.sleep(0.001)


def makes_it():
    begin("maker")
    while True:
        wanted.acquire()
        time.sleep(preparation)
        pool.submit(does_job)


def has_others_done():
    begin("bystander")
    while True:
        pool.submit(time.sleep, other_job).result()
        time.sleep(0.002)


for function in [waits_for_it, makes_it, has_others_done]:
    threading.Thread(target=function, daemon=True).start()
for _ in range(4):
    begun.acquire()
print("ready", flush=True)
sys.stdin.read()
