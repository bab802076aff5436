
# Where each answer takes longer than a third of the session timeout, no proof is
# ever fresh. A commit says so instead of asking for ever.

use strict;
use warnings;

use IPC::Run;
use Test::More;
use ZkLockTest;
use ZooKeeper;

# In Python, whose event loop has a clock: bytes pass 0.2 s after they came.
my $slow_proxy = <<'EOP';
import asyncio, sys
delay, host, port, own_port = 0.2, sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
async def pipe(reader, writer):
    loop = asyncio.get_event_loop()
    queue = asyncio.Queue()
    async def pass_on():
        while True:
            when, data = await queue.get()
            await asyncio.sleep(max(0, when - loop.time()))
            if not data:
                return writer.close()
            writer.write(data)
    passing = asyncio.ensure_future(pass_on())
    while True:
        try:
            data = await reader.read(65536)
        except OSError:
            data = b''
        await queue.put((loop.time() + delay, data))
        if not data:
            return await passing
async def serve(reader, writer):
    far_reader, far_writer = await asyncio.open_connection(host, port)
    await asyncio.gather(pipe(reader, far_writer), pipe(far_reader, writer))
async def main():
    server = await asyncio.start_server(serve, '127.0.0.1', own_port)
    await server.serve_forever()
asyncio.run(main())
EOP

my $zk = ZooKeeper->new(tick_time => 200)->start;
my ($host, $port) = split /:/, $zk->connect_string;
my $slow_port = ZooKeeper::free_port();
my $slow = IPC::Run::start([ 'python3', '-c', $slow_proxy, $host, $port, $slow_port ]);
my $node = cluster('berlin', $zk, 'zklock.session_timeout' => '1s');
$node->safe_psql('postgres', 'CREATE TABLE work (i int)');

foreach my $guard (qw(lease quorum))
{
	my $session = background($node);
	$session->query_safe("SET zklock.servers = '127.0.0.1:$slow_port';
		SET zklock.commit_guard = $guard");
	poll_until { $session->query("SELECT zk_lock('slow')"); $session->sqlstate eq '00000' }
	'the proxy', 10;
	$session->start_query('INSERT INTO work VALUES (1)');
	poll_until { $session->is_done } 'the commit to end', 30;
	$session->wait_result;
	is($session->sqlstate, '08006', "$guard: refused");
	like($session->error, qr/could not prove.*HINT:  Increase/s, 'with the reason');
	is($session->query_safe("SELECT state FROM zk_locks"), 'held', 'the lock is not lost');
	$session->quit;
}
is($node->safe_psql('postgres', 'SELECT count(*) FROM work'), '0', 'nothing is written');
$slow->signal('KILL');
$slow->finish;
done_testing();
