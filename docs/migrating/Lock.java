import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;

/**
 * Does some work in a transaction under a lock, over JDBC.
 * Usage: java -cp postgresql.jar Lock.java URL NAME TIMEOUT
 */
class Lock {
    public static void main(String[] args) throws SQLException {
        try (Connection connection = DriverManager.getConnection(args[0])) {
            connection.setAutoCommit(false);
            try (PreparedStatement lock = connection.prepareStatement("SELECT zklock.zk_try_xact_lock(?, ?::interval)")) {
                lock.setString(1, args[1]);
                lock.setString(2, args[2]);
                ResultSet result = lock.executeQuery();
                result.next();
                if (!result.getBoolean(1)) {
                    System.out.println("another session has the lock");
                    return;
                }
            }
            // ... statements on this connection ...
            connection.commit();    // SQLException with SQLState 40001: the lock was lost, run it again
            System.out.println("done");
        }
    }
}
