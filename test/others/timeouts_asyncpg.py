# The same as timeouts.py over asyncpg, which has functions of its own:
#
#   python3 timeouts_asyncpg.py DSN [FILE]
#
# Another session holds the lock "held". Prints a line for each call: what it says, or "an error".
# With FILE it does what calls.py does.
import asyncio
import datetime
import sys

import asyncpg


LOCKS = "SELECT string_agg(name, ' ' ORDER BY name) FROM zk_session_locks"
VALUES = {'s': str, 'n': int, 'b': lambda value: value == 'true', 'l': lambda value: value.split(','),
          'i': lambda value: datetime.timedelta(seconds=int(value.split()[0]))}


async def send_file(connection, file):
    for line in open(file):
        sql, *parameters = line.rstrip('\n').split('\t')
        for number in range(len(parameters)):
            sql = sql.replace('?', '$%d' % (number + 1), 1)
        try:
            await connection.fetch(sql, *[VALUES[p[0]](p[2:]) for p in parameters])
            outcome = 'done'
        except asyncpg.PostgresError as error:
            outcome = error.sqlstate
        print('%s: %s' % (outcome, await connection.fetchval(LOCKS) or 'none'))
        await connection.execute('SELECT zk_unlock_all()')


async def send_timeouts(connection):
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
    print('held: %s' % await connection.fetchval(LOCKS))


async def main():
    connection = await asyncpg.connect(sys.argv[1])
    if len(sys.argv) > 2:
        await send_file(connection, sys.argv[2])
    else:
        await send_timeouts(connection)
    await connection.close()

    class Connection(asyncpg.Connection):
        async def reset(self, *, timeout=None):
            await super().reset(timeout=timeout)
            await self.execute('SELECT zk_unlock_all()')

    for what, connection_class in ('reset', asyncpg.Connection), ('reset with the line', Connection):
        pool = await asyncpg.create_pool(sys.argv[1], min_size=1, max_size=1, connection_class=connection_class)
        await pool.execute("SELECT zk_lock('pooled')")
        print('%s: %s' % (what, await pool.fetchval("SELECT coalesce(string_agg(name, ' '), 'none') FROM zk_session_locks")))
        await pool.close()


asyncio.run(main())
