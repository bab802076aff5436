import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;

/** java -cp postgresql.jar Lock.java URL NAME TIMEOUT: one piece of work under a lock, over JDBC. */
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
                    System.out.println("another one has it");
                    return;
                }
            }
            // ... statements on this connection ...
            connection.commit();    // an SQLException with state 40001: the lock was lost, do it again
            System.out.println("done");
        }
    }
}
