"""Threads that wait for each other in the ways that Python has, over and over. Says `ready`."""

import queue
import threading
import time

lock = threading.Lock()
questions, answers = queue.Queue(1), queue.Queue(1)


def asks():
    while True:
        questions.put("question")
        answers.get()


def answers_them():
    while True:
        answers.put(questions.get())


def holds_the_lock():
    while True:
        with lock:
            time.sleep(0.001)


def sleeps():
    while True:
        time.sleep(0.002)


for loop in [asks, answers_them, holds_the_lock, holds_the_lock, sleeps]:
    threading.Thread(target=loop, daemon=True).start()
print("ready", flush=True)
threading.Event().wait()
