# A timeout as a string and as a timedelta over psycopg2 or psycopg, for drivers.pl:
#
#   python3 timeouts.py psycopg2|psycopg DSN
#
# Another session holds the lock "held". Prints a line for each call: what it says.
import datetime
import importlib
import sys

driver, dsn = sys.argv[1:]
connection = importlib.import_module(driver).connect(dsn)
connection.autocommit = True
cursor = connection.cursor()
for what, name, timeout in (
        ('string', 'held', '100 ms'),
        ('timedelta', 'held', datetime.timedelta(milliseconds=100)),
        ('free', 'free', '10 s')):
    cursor.execute('SELECT zk_try_lock(%s, %s)', (name, timeout))
    print('%s: %s' % (what, cursor.fetchone()[0]))
