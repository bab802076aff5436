// What lists.py does, with JDBC. Usage: java -cp DRIVER.jar Lists.java URL
import java.sql.*;
class Lists {
    public static void main(String[] args) throws Exception {
        Connection connection = DriverManager.getConnection(args[0]);
        for (String function : new String[] {"zk_try_lock", "zk_try_lock_set"}) {
            try (PreparedStatement lock = connection.prepareStatement("SELECT " + function + "(?)")) {
                lock.setArray(1, connection.createArrayOf("text", new String[] {"acct-1", "acct-2"}));
                ResultSet result = lock.executeQuery();
                result.next();
                System.out.println(result.getBoolean(1) ? "locked" : "?");
            } catch (SQLException error) {
                System.out.println(error.getSQLState());
            }
            ResultSet held = connection.createStatement().executeQuery(
                "SELECT string_agg(name, ' ' ORDER BY name) FROM zk_session_locks");
            held.next();
            System.out.println(held.getString(1));
            connection.createStatement().execute("SELECT zk_unlock_all()");
        }
    }
}
