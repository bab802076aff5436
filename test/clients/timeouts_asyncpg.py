# The same as timeouts.py over asyncpg, which has functions of its own:
#
#   python3 timeouts_asyncpg.py DSN
#
# Another session holds the lock "held". Prints a line for each call: what it says, or "an error".
import asyncio
import datetime
import sys

import asyncpg


async def main():
    connection = await asyncpg.connect(sys.argv[1])
    for what, call, *parameters in (
            ('string', 'zk_try_lock($1, $2)', 'held', '100 ms'),
            ('string with casts', 'zk_try_lock($1, $2::text::interval)', 'held', '100 ms'),
            ('timedelta', 'zk_try_lock($1, $2)', 'held', datetime.timedelta(milliseconds=100)),
            ('free', 'zk_try_lock($1, $2)', 'free', datetime.timedelta(seconds=10)),
            ('list', 'zk_try_lock($1)', ['acct-1', 'acct-2']),
            ('list of a set', 'zk_try_lock_set($1)', ['acct-1', 'acct-2'])):
        try:
            print('%s: %s' % (what, await connection.fetchval('SELECT ' + call, *parameters)))
        except asyncpg.exceptions.DataError:
            print('%s: an error' % what)
    print('held: %s' % await connection.fetchval("SELECT string_agg(name, ' ' ORDER BY name) FROM zk_session_locks"))
    await connection.close()


asyncio.run(main())
