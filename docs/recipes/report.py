import sys
import psycopg2
from kazoo.client import KazooClient

servers, database = sys.argv[1:]
client = KazooClient(hosts=servers)
client.start()
lock = client.Lock("/zklock/report", extra_lock_patterns=["lock-"])
with lock:
    # What zk_lock() returns in SQL: greater for every later holder.
    token = client.exists("/zklock/report/" + lock.node).czxid
    connection = psycopg2.connect(database)
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT zklock.zk_fence('report', %s)", (token,))
        cursor.execute("CALL report_work()")
    connection.close()
client.stop()
