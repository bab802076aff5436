/*
 * Curator.java: Curator's InterProcessMutex as a contestant. Each contender is
 * a CuratorFramework, and so a session, of its own.
 *
 * Usage: Curator SERVERS SESSION-TIMEOUT-MS; commands on standard input, see
 * README.md.
 */

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

public class Curator {
	static final int CONNECTION_TIMEOUT_MS = 15000;

	static String servers;
	static int timeoutMs;
	static final List<CuratorFramework> sessions = new ArrayList<>();
	static final BufferedReader in =
		new BufferedReader(new InputStreamReader(System.in));

	interface Work {
		void run(int contender) throws Exception;
	}

	static CuratorFramework open() throws Exception {
		CuratorFramework session = CuratorFrameworkFactory.newClient(servers,
			timeoutMs, CONNECTION_TIMEOUT_MS, new ExponentialBackoffRetry(1000, 3));
		session.start();
		session.blockUntilConnected();
		return session;
	}

	static void open(int count) throws Exception {
		while (sessions.size() < count)
			sessions.add(open());
	}

	static synchronized void say(String answer) {
		System.out.println(answer);
		System.out.flush();
	}

	/* Microseconds of the clock that all programs share. */
	static long now() {
		Instant now = Instant.now();
		return now.getEpochSecond() * 1000000L + now.getNano() / 1000;
	}

	static void write(String file, List<List<long[]>> cycles) throws Exception {
		try (PrintWriter out = new PrintWriter(file)) {
			for (int i = 0; i < cycles.size(); i++)
				for (long[] c : cycles.get(i))
					out.println(i + " " + c[0] + " " + c[1] + " " + c[2] + " " + c[3]);
		}
	}

	static List<Integer> numbers(String list) {
		List<Integer> numbers = new ArrayList<>();
		for (String one : list.split(","))
			numbers.add(Integer.parseInt(one));
		return numbers;
	}

	static List<List<long[]>> logs(int count) {
		List<List<long[]>> all = new ArrayList<>();
		for (int i = 0; i < count; i++)
			all.add(new ArrayList<>());
		return all;
	}

	/* A thread for each contender from first on. */
	static List<Thread> start(int first, int count, Work work) {
		List<Thread> threads = new ArrayList<>();
		for (int i = first; i < first + count; i++) {
			final int contender = i;
			Thread thread = new Thread(() -> {
				try {
					work.run(contender);
				} catch (Exception e) {
					e.printStackTrace();
					System.exit(1);
				}
			});
			thread.start();
			threads.add(thread);
		}
		return threads;
	}

	static void join(List<Thread> threads) throws Exception {
		for (Thread thread : threads)
			thread.join();
	}

	static void loop(int count, double seconds, int locks, String path, String file)
			throws Exception {
		open(count);
		List<List<long[]>> all = logs(count);
		long until = now() + (long) (seconds * 1e6);
		int share = locks / count;
		join(start(0, count, contender -> {
			CuratorFramework session = sessions.get(contender);
			List<long[]> log = all.get(contender);
			Map<Integer, InterProcessMutex> mutexes = new HashMap<>();
			InterProcessMutex mutex = new InterProcessMutex(session, path);
			Random random = new Random(contender);
			long requested;
			while ((requested = now()) < until) {
				if (locks > 1)
					mutex = mutexes.computeIfAbsent(
						contender * share + random.nextInt(share),
						k -> new InterProcessMutex(session, path + "-" + k));
				mutex.acquire();
				long granted = now();
				mutex.release();
				log.add(new long[] {requested, granted, granted, now()});
			}
		}));
		write(file, all);
	}

	/* See README.md: a queue of that depth that stops at these grants. */
	static void queue(int depth, List<Integer> stops, String path, String file)
			throws Exception {
		open(depth + 1);
		List<List<long[]>> all = logs(depth + 1);
		AtomicInteger grants = new AtomicInteger();
		Semaphore stopped = new Semaphore(0);
		Semaphore go = new Semaphore(0);
		InterProcessMutex first = new InterProcessMutex(sessions.get(0), path);
		long asked = now();
		first.acquire();
		long held = now();
		List<Thread> waiters = start(1, depth, contender -> {
			InterProcessMutex mutex =
				new InterProcessMutex(sessions.get(contender), path);
			long requested = now();
			mutex.acquire();
			long granted = now();
			if (stops.contains(grants.incrementAndGet())) {
				stopped.release();
				go.acquire();
			}
			long releasing = now();
			mutex.release();
			all.get(contender).add(
				new long[] {requested, granted, releasing, now()});
		});
		say("held");
		in.readLine();
		long releasing = now();
		first.release();
		all.get(0).add(new long[] {asked, held, releasing, now()});
		for (int i = 0; i < stops.size(); i++) {
			stopped.acquire();
			say("stopped");
			in.readLine();
			go.release();
		}
		join(waiters);
		write(file, all);
	}

	static void fresh(int count, String path, String file) throws Exception {
		List<List<long[]>> all = logs(1);
		for (int i = 0; i < count; i++) {
			long requested = now();
			CuratorFramework session = open();
			InterProcessMutex mutex = new InterProcessMutex(session, path);
			mutex.acquire();
			long granted = now();
			mutex.release();
			all.get(0).add(new long[] {requested, granted, granted, now()});
			session.close();
		}
		write(file, all);
	}

	/* Of two sessions the second tries in vain. */
	static void tryInVain(int count, String path, String file) throws Exception {
		open(2);
		List<List<long[]>> all = logs(1);
		InterProcessMutex held = new InterProcessMutex(sessions.get(0), path);
		InterProcessMutex tried = new InterProcessMutex(sessions.get(1), path);
		held.acquire();
		say("held");
		in.readLine();
		for (int i = 0; i < count; i++) {
			long requested = now();
			if (tried.acquire(0, TimeUnit.SECONDS))
				throw new IllegalStateException("the lock was not held");
			long done = now();
			all.get(0).add(new long[] {requested, done, done, done});
		}
		say("tried");
		in.readLine();
		held.release();
		write(file, all);
	}

	/* All at once: each takes its time. */
	static void leave() throws Exception {
		join(start(0, sessions.size(), i -> sessions.get(i).close()));
		System.exit(0);
	}

	public static void main(String[] args) throws Exception {
		servers = args[0];
		timeoutMs = Integer.parseInt(args[1]);
		String line;
		while ((line = in.readLine()) != null) {
			String[] w = line.split(" ");
			switch (w[0]) {
			case "loop":
				loop(Integer.parseInt(w[1]), Double.parseDouble(w[2]),
					Integer.parseInt(w[3]), w[4], w[5]);
				break;
			case "queue":
				queue(Integer.parseInt(w[1]), numbers(w[2]), w[3], w[4]);
				break;
			case "fresh":
				fresh(Integer.parseInt(w[1]), w[2], w[3]);
				break;
			case "try":
				tryInVain(Integer.parseInt(w[1]), w[2], w[3]);
				break;
			case "take":
				open(1);
				new InterProcessMutex(sessions.get(0), w[1]).acquire();
				say("ok " + now() + " " + ProcessHandle.current().pid());
				continue;
			case "leave":
				leave();
				break;
			default:
				throw new IllegalArgumentException(line);
			}
			say("ok");
		}
		leave();
	}
}
