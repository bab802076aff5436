import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Runs a command while it holds a lock, with the fencing token of the lock in the variable TOKEN.
 * Usage: java WithLock SERVERS PATH COMMAND...
 * The exit status is that of the command, or 75 if the lock was not granted within a minute.
 */
class WithLock extends InterProcessMutex {
    private final CuratorFramework client;

    WithLock(CuratorFramework client, String path) {
        super(client, path);
        this.client = client;
    }

    /** The fencing token, as zk_lock() returns it in SQL. Each later holder has a greater one. */
    long token() throws Exception {
        return client.checkExists().forPath(getLockPath()).getCzxid();
    }

    public static void main(String[] args) throws Exception {
        int status = 75;
        try (CuratorFramework client = CuratorFrameworkFactory.newClient(
                args[0], 15000, 10000, new ExponentialBackoffRetry(500, 3))) {
            client.start();
            WithLock lock = new WithLock(client, args[1]);
            if (lock.acquire(60, TimeUnit.SECONDS)) {
                try {
                    status = lock.run(List.of(args).subList(2, args.length));
                } finally {
                    lock.release();
                }
            }
        }
        System.exit(status);
    }

    private int run(List<String> words) throws Exception {
        ProcessBuilder command = new ProcessBuilder(words).inheritIO();
        command.environment().put("TOKEN", Long.toString(token()));
        Process process = command.start();
        // Without a connection the lock may be lost, so the command is stopped.
        client.getConnectionStateListenable().addListener((c, state) -> {
            if (!state.isConnected())
                process.destroy();
        });
        if (!client.getZookeeperClient().isConnected())
            process.destroy();
        return process.waitFor();
    }
}
