# Sends calls of zklock over a driver that passes their arguments as parameters, for t/508:
#
#   python3 calls.py DRIVER CONNECT-STRING FILE
#
# A line of the file is the SQL, with a ? for each parameter, and the parameters, with tabs between
# them: s:text, l:a,list i:1 s, n:5 or b:true. Prints for each line "done" or the SQLSTATE, and the
# locks that are held then. calls.go, calls.rb, Calls.java and drivers.js do the same.
import importlib
import sys

values = {'s': str, 'i': str, 'n': int, 'b': lambda value: value == 'true', 'l': lambda value: value.split(',')}
driver = importlib.import_module(sys.argv[1])
connection = driver.connect(sys.argv[2])
connection.autocommit = True
cursor = connection.cursor()
for line in open(sys.argv[3]):
    sql, *parameters = line.rstrip('\n').split('\t')
    try:
        cursor.execute(sql.replace('?', '%s'), [values[p[0]](p[2:]) for p in parameters])
        outcome = 'done'
    except driver.Error as error:
        outcome = getattr(error, 'pgcode', None) or error.sqlstate
    cursor.execute("SELECT string_agg(name, ' ' ORDER BY name) FROM zk_session_locks")
    print('%s: %s' % (outcome, cursor.fetchone()[0] or 'none'))
    cursor.execute('SELECT zk_unlock_all()')
