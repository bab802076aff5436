# Sends a list of names as the parameter of zk_try_lock(), alone and with a cast, for t/508: prints
# for each the outcome, and the locks that are held then.
# Usage: python3 lists.py DRIVER CONNECT-STRING
import importlib
import sys

driver = importlib.import_module(sys.argv[1])
connection = driver.connect(sys.argv[2])
connection.autocommit = True
for cast in ('', '::text[]'):
    cursor = connection.cursor()
    try:
        cursor.execute('SELECT zk_try_lock(%s' + cast + ')', (['acct-1', 'acct-2'],))
        print('locked' if cursor.fetchone()[0] is True else '?')
    except driver.Error as error:
        print(getattr(error, 'pgcode', None) or error.sqlstate)
    cursor.execute("SELECT string_agg(name, ' ' ORDER BY name) FROM zk_session_locks")
    print(cursor.fetchone()[0])
    cursor.execute('SELECT zk_unlock_all()')
