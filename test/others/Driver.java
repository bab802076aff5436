// What the drivers in Java share: the line protocol of test/lib/Peer.pm.

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;

abstract class Driver
{
	// Choose the lock that the other commands mean.
	abstract void use(String kind, String path) throws Exception;

	abstract void lock() throws Exception;

	abstract boolean tryLock() throws Exception;

	abstract void unlock() throws Exception;

	abstract void authenticate(String credentials) throws Exception;

	// Overwrite a queue node's data as a request to let go of the lock.
	void revoke(String node) throws Exception
	{
		throw new UnsupportedOperationException("no revoke here");
	}

	abstract void close() throws Exception;

	// Answer commands until "quit" or the end of the input.
	final void serve(String version) throws Exception
	{
		BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
		String line;

		System.out.println("ready " + version);
		while ((line = in.readLine()) != null && !line.equals("quit"))
		{
			String answer;

			try
			{
				answer = obey(line.split(" "));
			}
			catch (Exception e)
			{
				answer = "error " + e.toString().replace('\n', ' ');
			}
			System.out.println(answer);
		}
		close();
	}

	private String obey(String[] word) throws Exception
	{
		switch (word[0])
		{
			case "use":
				use(word[1], word[2]);
				return "ok";
			case "lock":
				lock();
				return "locked";
			case "try":
				return tryLock() ? "locked" : "busy";
			case "unlock":
				unlock();
				return "unlocked";
			case "increment":
				increment(Path.of(word[1]), Integer.parseInt(word[2]));
				return "done";
			case "auth":
				authenticate(word[1]);
				return "ok";
			case "revoke":
				revoke(word[1]);
				return "ok";
			default:
				return "error unknown command";
		}
	}

	// Nothing but the lock protects the counter. The pause makes it likely that
	// two at a time lose a count.
	private void increment(Path file, int times) throws Exception
	{
		for (int i = 0; i < times; i++)
		{
			lock();
			try
			{
				long count = Long.parseLong(Files.readString(file).trim());
				Thread.sleep(1);
				Files.writeString(file, count + 1 + "\n");
			}
			finally
			{
				unlock();
			}
		}
	}

	// The version that a jar built by Maven says of itself.
	static String mavenVersion(Class<?> member, String artifact) throws IOException
	{
		Properties properties = new Properties();
		String resource = "/META-INF/maven/" + artifact + "/pom.properties";

		try (InputStream in = member.getResourceAsStream(resource))
		{
			properties.load(in);
		}
		return properties.getProperty("version");
	}
}
