// Drives the locks of Apache Curator; see test/lib/Peer.pm.
// Usage: java CuratorDriver CONNECT-STRING [SESSION-TIMEOUT-MS]

import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.retry.RetryNTimes;

class CuratorDriver extends Driver
{
	private final CuratorFramework client;
	private InterProcessLock lock;

	private CuratorDriver(String servers, int timeout) throws InterruptedException
	{
		client = CuratorFrameworkFactory.newClient(servers, timeout, 30000,
			new RetryNTimes(3, 100));
		client.start();
		client.blockUntilConnected();
	}

	public static void main(String[] args) throws Exception
	{
		int timeout = args.length > 1 ? Integer.parseInt(args[1]) : 30000;

		new CuratorDriver(args[0], timeout).serve("Apache Curator " +
			mavenVersion(InterProcessMutex.class, "org.apache.curator/curator-recipes"));
	}

	@Override
	void use(String kind, String path)
	{
		switch (kind)
		{
			case "mutex":
				lock = new InterProcessMutex(client, path);
				break;
			case "read":
				lock = new InterProcessReadWriteLock(client, path).readLock();
				break;
			case "write":
				lock = new InterProcessReadWriteLock(client, path).writeLock();
				break;
			case "semaphore_mutex":
				lock = new InterProcessSemaphoreMutex(client, path);
				break;
			default:
				throw new IllegalArgumentException(kind);
		}
	}

	@Override
	void lock() throws Exception
	{
		lock.acquire();
	}

	@Override
	boolean tryLock() throws Exception
	{
		return lock.acquire(0, TimeUnit.MILLISECONDS);
	}

	@Override
	void unlock() throws Exception
	{
		lock.release();
	}

	@Override
	void authenticate(String credentials) throws Exception
	{
		client.getZookeeperClient().getZooKeeper()
			.addAuthInfo("digest", credentials.getBytes());
	}

	@Override
	void revoke(String node) throws Exception
	{
		Revoker.attemptRevoke(client, node);
	}

	@Override
	void close()
	{
		client.close();
	}
}
