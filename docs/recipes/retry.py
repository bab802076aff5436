import random
import time
import psycopg2

AGAIN = ("40001", "40P01", "55P03", "08001", "08006")


def transact(database, work, attempts=5):
    """Call work(cursor) in a transaction, and again until a transaction has committed."""
    for attempt in range(1, attempts + 1):
        connection = xid = None
        try:
            connection = psycopg2.connect(database)
            with connection.cursor() as cursor:
                work(cursor)
                cursor.execute("SELECT pg_catalog.pg_current_xact_id_if_assigned()::pg_catalog.text")
                xid = cursor.fetchone()[0]
            connection.commit()
            return
        except psycopg2.Error as error:
            if connection is None or connection.closed:
                if xid is not None and is_committed(database, xid):
                    return
            elif error.pgcode not in AGAIN:
                raise
            if attempt == attempts:
                raise
        finally:
            if connection is not None:
                connection.close()
        time.sleep(random.uniform(0.1, 0.2) * 2 ** attempt)


def is_committed(database, xid):
    """Has the transaction committed, whose COMMIT got no answer?"""
    while True:
        connection = psycopg2.connect(database)
        with connection, connection.cursor() as cursor:
            cursor.execute("SELECT pg_catalog.pg_xact_status(%s::pg_catalog.xid8)", (xid,))
            status = cursor.fetchone()[0]
        connection.close()
        if status != "in progress":
            return status == "committed"
        time.sleep(0.5)
