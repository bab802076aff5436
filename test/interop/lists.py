# Sends a list of names to zk_try_lock() and to zk_try_lock_set(), for t/508: prints for each the
# outcome, and the locks that are held then.
# Usage: python3 lists.py DRIVER CONNECT-STRING
import importlib
import sys

driver = importlib.import_module(sys.argv[1])
connection = driver.connect(sys.argv[2])
connection.autocommit = True
for function in ('zk_try_lock', 'zk_try_lock_set'):
    cursor = connection.cursor()
    try:
        cursor.execute('SELECT ' + function + '(%s)', (['acct-1', 'acct-2'],))
        print('locked' if cursor.fetchone()[0] is True else '?')
    except driver.Error as error:
        print(getattr(error, 'pgcode', None) or error.sqlstate)
    cursor.execute("SELECT string_agg(name, ' ' ORDER BY name) FROM zk_session_locks")
    print(cursor.fetchone()[0])
    cursor.execute('SELECT zk_unlock_all()')
