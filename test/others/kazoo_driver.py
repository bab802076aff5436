# Drives the locks of Kazoo; see test/lib/Peer.pm.
# Usage: python3 kazoo_driver.py CONNECT-STRING

import os
import re
import sys
import threading
import time

from kazoo.client import KazooClient
from kazoo.version import __version__

# What makes Kazoo see the queue nodes of zklock and of Curator's mutex.
EXTRA = {"extra_lock_patterns": ["lock-"]}


def make_semaphore(client, path):
    """A semaphore whose znode is not called like an entry of a queue.

    It is called by 32 random hexadecimal digits. Should the last ten be
    decimal, which one in a hundred is, zklock takes it for a contender.
    """
    while True:
        semaphore = client.Semaphore(path, "kazoo")
        if not re.search(r"\d{10}$", semaphore.create_path):
            return semaphore


class ElectionLock:
    """Who is elected has the lock. There is no way to try."""

    def __init__(self, client, path):
        self.election = client.Election(path, "kazoo")

    def acquire(self):
        self.leads, self.ends = threading.Event(), threading.Event()
        self.thread = threading.Thread(
            target=self.election.run, args=(self.lead,), daemon=True
        )
        self.thread.start()
        self.leads.wait()

    def lead(self):
        self.leads.set()
        self.ends.wait()

    def release(self):
        self.ends.set()
        self.thread.join()
        return True

    def __enter__(self):
        self.acquire()

    def __exit__(self, *error):
        self.release()


KINDS = {
    "lock": lambda client, path: client.Lock(path, "kazoo"),
    "lock+": lambda client, path: client.Lock(path, "kazoo", **EXTRA),
    "write": lambda client, path: client.WriteLock(path, "kazoo"),
    "write+": lambda client, path: client.WriteLock(path, "kazoo", **EXTRA),
    "read": lambda client, path: client.ReadLock(path, "kazoo"),
    "read+": lambda client, path: client.ReadLock(path, "kazoo", **EXTRA),
    "semaphore": make_semaphore,
    "election": ElectionLock,
}


def tls_options():
    """None, if there is no ZKLOCK_TEST_TLS; see test/lib/ZooKeeper.pm."""
    directory = os.environ.get("ZKLOCK_TEST_TLS")
    if not directory:
        return {}
    return {
        "use_ssl": True,
        "verify_certs": True,
        "ca": directory + "/test-ca.pem",
        "certfile": directory + "/test-client.pem",
        "keyfile": directory + "/test-client.key",
    }


class Driver:
    def __init__(self, servers):
        self.client = KazooClient(hosts=servers, timeout=30, **tls_options())
        self.client.start()
        self.current = None

    def use(self, kind, path):
        self.current = KINDS[kind](self.client, path)
        return "ok"

    def lock(self):
        self.current.acquire()
        return "locked"

    def try_lock(self):
        return "locked" if self.current.acquire(blocking=False) else "busy"

    def unlock(self):
        if not self.current.release():
            raise RuntimeError("not held")
        return "unlocked"

    def increment(self, path, times):
        """Nothing but the lock protects the counter.

        The pause makes it likely that two at a time lose a count.
        """
        for _ in range(int(times)):
            with self.current:
                with open(path) as counter:
                    count = int(counter.read())
                time.sleep(0.001)
                with open(path, "w") as counter:
                    counter.write("%d\n" % (count + 1))
        return "done"

    def auth(self, credentials):
        self.client.add_auth("digest", credentials)
        return "ok"


def main():
    driver = Driver(sys.argv[1])
    commands = {
        "use": driver.use,
        "lock": driver.lock,
        "try": driver.try_lock,
        "unlock": driver.unlock,
        "increment": driver.increment,
        "auth": driver.auth,
    }
    print("ready Kazoo %s" % __version__, flush=True)
    for line in sys.stdin:
        word = line.split()
        if word[0] == "quit":
            break
        try:
            answer = commands[word[0]](*word[1:])
        except Exception as error:
            answer = "error %r" % error
        print(answer, flush=True)
    driver.client.stop()


main()
