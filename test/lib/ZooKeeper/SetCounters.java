import java.io.File;
import java.util.concurrent.ConcurrentHashMap;

import org.apache.zookeeper.server.DataTree;
import org.apache.zookeeper.server.persistence.FileTxnSnapLog;

/**
 * Set the sequence counters of znodes in the data of a server that is not
 * running. Nobody can wait until 2^31 znodes were created, and the server has
 * no request for it.
 *
 * Arguments: data directory, then a znode and its counter, and so on. The
 * counter is the number of the next sequential child; it can only be raised.
 */
public class SetCounters {
	public static void main(String[] args) throws Exception {
		File directory = new File(args[0]);
		FileTxnSnapLog files = new FileTxnSnapLog(directory, directory);
		DataTree tree = new DataTree();
		ConcurrentHashMap<Long, Integer> sessions = new ConcurrentHashMap<>();
		long zxid = files.restore(tree, sessions, (header, record, digest) -> { });
		for (int i = 1; i + 1 < args.length; i += 2)
			tree.setCversionPzxid(args[i], Integer.parseInt(args[i + 1]), zxid);
		files.save(tree, sessions, true);
		files.close();
	}
}
