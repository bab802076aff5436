# One tick of a leader: asks for the lease over any connection, and works if this instance leads.
# Usage: python3 leader.py DSN NAME ADDRESS
import sys
import psycopg2

connection = psycopg2.connect(sys.argv[1])
with connection, connection.cursor() as cursor:         # ahead of the work, whose snapshot must be newer
    cursor.execute("SELECT zklock.zk_try_lease('mailer', %s, '30 s', data => %s)", sys.argv[2:])
    token = cursor.fetchone()[0]
if token is not None:
    with connection, connection.cursor() as cursor:     # commits, or rolls back after an error
        cursor.execute("SELECT zklock.zk_require_lease('mailer', %s)", (token,))
        cursor.execute("CALL mailer_work()")
print("follows" if token is None else "leads")
