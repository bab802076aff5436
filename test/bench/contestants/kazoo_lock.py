"""Kazoo's Lock as a contestant. Each contender has a KazooClient, and so a
session, of its own, in a process of its own. Only beyond MAX_PROCESSES contenders
share processes: they wait there, one of them works at a time.

Usage: kazoo_lock.py SERVERS SESSION-TIMEOUT-MS; commands on standard input, see
README.md.
"""

import ctypes
import logging
import multiprocessing
import os
import random
import signal
import sys
import threading
import time

from kazoo.client import KazooClient

MAX_PROCESSES = 40
PR_SET_PDEATHSIG = 1

logging.disable(logging.CRITICAL)
servers = sys.argv[1]
timeout = int(sys.argv[2]) / 1000
fork = multiprocessing.get_context('fork')
workers = []
# How many contenders there are, or might be.
opened = [0]
# For "queue", in all processes: so many have been granted the lock; somebody
# keeps it; he may go on.
grants = fork.Value('i', 0)
stopped = fork.Semaphore(0)
go = fork.Semaphore(0)


def now():
    """Microseconds of the clock that all programs share."""
    return time.time_ns() // 1000


def say(answer):
    print(answer, flush=True)


def connect():
    client = KazooClient(hosts=servers, timeout=timeout)
    client.start()
    return client


class Contender:
    """Runs in a worker process; the methods are the commands."""

    def __init__(self, number):
        self.number = number
        self.client = None

    def open(self):
        if self.client is None:
            self.client = connect()

    def loop(self, until, share, path):
        client, cycles, locks = self.client, [], {}
        lock = client.Lock(path)
        chooser = random.Random(self.number)
        while True:
            requested = now()
            if requested >= until:
                return cycles
            if share:
                k = self.number * share + chooser.randrange(share)
                lock = locks.get(k)
                if lock is None:
                    lock = locks[k] = client.Lock('%s-%d' % (path, k))
            lock.acquire()
            granted = now()
            lock.release()
            cycles.append((requested, granted, granted, now()))

    def queue(self, path, stops):
        lock = self.client.Lock(path)
        requested = now()
        lock.acquire()
        granted = now()
        with grants.get_lock():
            grants.value += 1
            keeps = grants.value in stops
        if keeps:
            stopped.release()
            go.acquire()
        releasing = now()
        lock.release()
        return [(requested, granted, releasing, now())]

    def fresh(self, count, path):
        cycles = []
        for _ in range(count):
            requested = now()
            client = connect()
            lock = client.Lock(path)
            lock.acquire()
            granted = now()
            lock.release()
            cycles.append((requested, granted, granted, now()))
            client.stop()
            client.close()
        return cycles

    def take(self, path):
        self.lock = self.client.Lock(path)
        self.lock.acquire()
        return now(), os.getpid()

    def give(self):
        self.lock.release()

    def try_in_vain(self, count, path):
        cycles, lock = [], self.client.Lock(path)
        for _ in range(count):
            requested = now()
            if lock.acquire(blocking=False):
                raise RuntimeError('the lock was not held')
            done = now()
            cycles.append((requested, done, done, done))
        return cycles

    def leave(self):
        if self.client is not None:
            self.client.stop()
            self.client.close()


def serve(pipe):
    """A worker process: a command for all its contenders, and their answers."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    contenders = {}
    while True:
        numbers, method, arguments = pipe.recv()
        answers = {}

        def work(n):
            contender = contenders.setdefault(n, Contender(n))
            answers[n] = getattr(contender, method)(*arguments)

        threads = [threading.Thread(target=work, args=(n,)) for n in numbers]
        for thread in threads[1:]:
            thread.start()
        threads[0].run()
        for thread in threads[1:]:
            thread.join()
        pipe.send(answers)


def send(numbers, method, *arguments):
    """Start a command for these contenders; collect() waits for it."""
    opened[0] = max(opened[0], max(numbers) + 1)
    by_worker = {}
    for n in numbers:
        by_worker.setdefault(n % MAX_PROCESSES, []).append(n)
    while len(workers) < min(max(numbers) + 1, MAX_PROCESSES):
        ours, theirs = fork.Pipe()
        fork.Process(target=serve, daemon=True, args=(theirs,)).start()
        workers.append(ours)
    for worker, its in by_worker.items():
        workers[worker].send((its, method, arguments))
    return list(by_worker)


def collect(used):
    answers = {}
    for worker in used:
        answers.update(workers[worker].recv())
    return answers


def call(numbers, method, *arguments):
    if not numbers:
        return {}
    return collect(send(numbers, method, *arguments))


def write(file, answers):
    with open(file, 'w') as out:
        for n in sorted(answers):
            for cycle in answers[n]:
                print(n, *cycle, file=out)


def loop(count, seconds, locks, path, file):
    call(range(count), 'open')
    until = now() + int(seconds * 1e6)
    share = locks // count if locks > 1 else 0
    write(file, call(range(count), 'loop', until, share, path))


def queue(depth, stops, path, file):
    """See README.md: a queue of that depth that stops at these grants."""
    # Worker 0 must stay free to let go, so its other contenders sit out.
    waiters = [n for n in range(1, 2 * depth + 1) if n % MAX_PROCESSES][:depth]
    call([0] + waiters, 'open')
    grants.value = 0
    asked = now()
    held = call([0], 'take', path)[0][0]
    used = send(waiters, 'queue', path, stops)
    say('held')
    sys.stdin.readline()
    releasing = now()
    call([0], 'give')
    released = now()
    for _ in stops:
        stopped.acquire()
        say('stopped')
        sys.stdin.readline()
        go.release()
    answers = collect(used)
    answers[0] = [(asked, held, releasing, released)]
    write(file, answers)


def try_in_vain(count, path, file):
    call([0, 1], 'open')
    call([0], 'take', path)
    say('held')
    sys.stdin.readline()
    answers = call([1], 'try_in_vain', count, path)
    say('tried')
    sys.stdin.readline()
    call([0], 'give')
    write(file, answers)


def main():
    for line in iter(sys.stdin.readline, ''):
        w = line.split()
        if w[0] == 'loop':
            loop(int(w[1]), float(w[2]), int(w[3]), w[4], w[5])
        elif w[0] == 'queue':
            queue(int(w[1]), [int(n) for n in w[2].split(',')], w[3], w[4])
        elif w[0] == 'fresh':
            write(w[3], call([0], 'fresh', int(w[1]), w[2]))
        elif w[0] == 'try':
            try_in_vain(int(w[1]), w[2], w[3])
        elif w[0] == 'take':
            call([0], 'open')
            say('ok %d %d' % call([0], 'take', w[1])[0])
            continue
        elif w[0] == 'leave':
            break
        else:
            raise ValueError(line)
        say('ok')
    call(range(opened[0]), 'leave')


main()
