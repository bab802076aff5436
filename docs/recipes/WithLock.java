import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

class WithLock extends InterProcessMutex {
    private final CuratorFramework client;

    WithLock(CuratorFramework client, String path) {
        super(client, path);
        this.client = client;
    }

    /** What zk_lock() returns in SQL: greater for every later holder. */
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
        // A connection that is gone may mean a lock that is gone: stop.
        client.getConnectionStateListenable().addListener((c, state) -> {
            if (!state.isConnected())
                process.destroy();
        });
        if (!client.getZookeeperClient().isConnected())
            process.destroy();
        return process.waitFor();
    }
}
