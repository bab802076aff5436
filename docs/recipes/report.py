# Holds the lock "report" in Kazoo while it works in a transaction of PostgreSQL.
# Usage: python3 report.py SERVERS DSN
import sys
import psycopg2
from kazoo.client import KazooClient

servers, database = sys.argv[1:]
client = KazooClient(hosts=servers)
client.start()
lock = client.Lock("/zklock/report", extra_lock_patterns=["lock-"])
with lock:
    # The fencing token, as zk_lock() returns it in SQL. Each later holder has a greater one.
    token = client.exists("/zklock/report/" + lock.node).czxid
    connection = psycopg2.connect(database)
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT zklock.zk_fence('report', %s)", (token,))
        cursor.execute("CALL report_work()")
    connection.close()
client.stop()
