import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;

/**
 * One tick of a leader: asks for the lease over any connection, and works if this instance leads.
 * Usage: java -cp postgresql.jar Leader.java URL NAME ADDRESS
 */
class Leader {
    public static void main(String[] args) throws SQLException {
        try (Connection connection = DriverManager.getConnection(args[0])) {
            PreparedStatement lease = connection.prepareStatement("SELECT zklock.zk_try_lease('mailer', ?, '30 s', data => ?)");
            lease.setString(1, args[1]);
            lease.setString(2, args[2]);
            ResultSet result = lease.executeQuery();
            result.next();
            long token = result.getLong(1);
            boolean leads = !result.wasNull();
            if (leads) {
                connection.setAutoCommit(false);    // the snapshot of the work must be newer than the lease
                connection.createStatement().execute("SELECT zklock.zk_require_lease('mailer', " + token + ")");
                connection.createStatement().execute("CALL mailer_work()");
                connection.commit();    // SQLException with SQLState 40001: this instance does not lead any more
            }
            System.out.println(leads ? "leads" : "follows");
        }
    }
}
