// Drives the locks of Apache Curator; see test/lib/Peer.pm.
// Usage: java CuratorDriver CONNECT-STRING [SESSION-TIMEOUT-MS]

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
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
			case "latch":
				lock = new LatchLock(client, path);
				break;
			case "selector":
				lock = new SelectorLock(client, path);
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

	// Who leads has the lock. There is no way to try.
	private abstract static class Leadership implements InterProcessLock
	{
		final CuratorFramework client;
		final String path;

		Leadership(CuratorFramework client, String path)
		{
			this.client = client;
			this.path = path;
		}

		@Override
		public boolean acquire(long time, TimeUnit unit)
		{
			throw new UnsupportedOperationException("no try here");
		}

		@Override
		public boolean isAcquiredInThisProcess()
		{
			throw new UnsupportedOperationException("not asked for here");
		}
	}

	private static class LatchLock extends Leadership
	{
		private LeaderLatch latch;

		LatchLock(CuratorFramework client, String path)
		{
			super(client, path);
		}

		@Override
		public void acquire() throws Exception
		{
			latch = new LeaderLatch(client, path);
			latch.start();
			latch.await();
		}

		@Override
		public void release() throws Exception
		{
			latch.close();
		}
	}

	private static class SelectorLock extends Leadership
	{
		private LeaderSelector selector;
		private ExecutorService executor;
		private CountDownLatch leads;
		private CountDownLatch ends;

		SelectorLock(CuratorFramework client, String path)
		{
			super(client, path);
		}

		@Override
		public void acquire() throws Exception
		{
			leads = new CountDownLatch(1);
			ends = new CountDownLatch(1);
			executor = Executors.newSingleThreadExecutor();
			selector = new LeaderSelector(client, path, executor,
				new LeaderSelectorListenerAdapter()
				{
					@Override
					public void takeLeadership(CuratorFramework client) throws Exception
					{
						leads.countDown();
						ends.await();
					}
				});
			selector.start();
			leads.await();
		}

		// Its thread gives the leadership back when takeLeadership() has returned;
		// close() would interrupt that.
		@Override
		public void release() throws Exception
		{
			ends.countDown();
			executor.shutdown();
			executor.awaitTermination(30, TimeUnit.SECONDS);
			selector.close();
		}
	}
}
