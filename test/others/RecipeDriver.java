// Drives the lock among ZooKeeper's own recipes in Java; see test/lib/Peer.pm.
// Usage: java RecipeDriver CONNECT-STRING

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.apache.zookeeper.Watcher.Event.KeeperState;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.recipes.lock.LockListener;
import org.apache.zookeeper.recipes.lock.WriteLock;

class RecipeDriver extends Driver implements LockListener
{
	private final ZooKeeper client;
	private String path;
	private WriteLock lock;
	private Semaphore granted;

	private RecipeDriver(String servers) throws Exception
	{
		CountDownLatch connected = new CountDownLatch(1);

		client = new ZooKeeper(servers, 30000, event ->
		{
			if (event.getState() == KeeperState.SyncConnected)
				connected.countDown();
		});
		connected.await();
	}

	public static void main(String[] args) throws Exception
	{
		new RecipeDriver(args[0]).serve("ZooKeeper recipes " +
			mavenVersion(WriteLock.class, "org.apache.zookeeper/zookeeper-recipes-lock"));
	}

	@Override
	void use(String kind, String path)
	{
		this.path = path;
	}

	// WriteLock.lock() does not wait: it calls the listener, now or later. Or
	// never, if the one ahead left between its two looks at the queue; so ask
	// again (a second call does not queue up again). What it returns counts: the
	// listener is called by the watch, too, which may come when that lock has
	// been released and the next one is waited for.
	@Override
	void lock() throws Exception
	{
		begin();
		while (!lock.lock())
			granted.tryAcquire(100, TimeUnit.MILLISECONDS);
	}

	@Override
	boolean tryLock() throws Exception
	{
		begin();
		if (lock.lock())
			return true;
		unlock();
		return false;
	}

	private void begin()
	{
		granted = new Semaphore(0);
		lock = new WriteLock(client, path, Ids.OPEN_ACL_UNSAFE, this);
	}

	// The watch calls lock() as well. If that comes behind the release, on a busy
	// machine, it queues up again, for nobody: so no lock is used twice, and it is
	// closed before its monitor is free.

	@Override
	void unlock()
	{
		synchronized (lock)
		{
			lock.unlock();
			lock.close();
		}
	}

	@Override
	void authenticate(String credentials)
	{
		client.addAuthInfo("digest", credentials.getBytes());
	}

	@Override
	void close() throws InterruptedException
	{
		client.close();
	}

	@Override
	public void lockAcquired()
	{
		granted.release();
	}

	@Override
	public void lockReleased()
	{
	}
}
