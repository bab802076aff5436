// What calls.py does, with JDBC. Usage: java -cp DRIVER.jar Calls.java URL FILE
import java.nio.file.*;
import java.sql.*;
class Calls {
    public static void main(String[] args) throws Exception {
        Connection connection = DriverManager.getConnection(args[0]);
        for (String line : Files.readAllLines(Path.of(args[1]))) {
            String[] words = line.split("\t");
            String outcome = "done";
            try (PreparedStatement call = connection.prepareStatement(words[0])) {
                for (int i = 1; i < words.length; i++) {
                    String value = words[i].substring(2);
                    switch (words[i].charAt(0)) {
                        case 'n': call.setInt(i, Integer.parseInt(value)); break;
                        case 'b': call.setBoolean(i, Boolean.parseBoolean(value)); break;
                        case 'l': call.setArray(i, connection.createArrayOf("text", value.split(","))); break;
                        default: call.setString(i, value);
                    }
                }
                call.execute();
            } catch (SQLException error) {
                outcome = error.getSQLState();
            }
            ResultSet locks = connection.createStatement().executeQuery(
                "SELECT coalesce(string_agg(name, ' ' ORDER BY name), 'none') FROM zk_session_locks");
            locks.next();
            System.out.println(outcome + ": " + locks.getString(1));
            connection.createStatement().execute("SELECT zk_unlock_all()");
        }
    }
}
