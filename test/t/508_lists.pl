
# A list of names that a driver sends is never taken for the name of one lock: drivers that type
# it as an array get several locks, those that send it as a text are refused unless the SQL has a
# cast. Tested with six real drivers of four languages, as docs/recipes.md lists them.

use File::Basename qw(dirname);
use Peer;
use PostgreSQL::Test::Utils;
use Programs;
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $berlin = cluster('berlin', $zk, listen_addresses => '127.0.0.1');
my $port = $berlin->port;
my $user = getpwuid $<;
my $directory = PostgreSQL::Test::Utils::tempdir();

my $in_python = <<~'PYTHON';
	import sys
	import DRIVER
	connection = DRIVER.connect(sys.argv[1])
	connection.autocommit = True
	for cast in ('', '::text[]'):
	    cursor = connection.cursor()
	    try:
	        cursor.execute('SELECT zk_try_lock(%s' + cast + ')', (['acct-1', 'acct-2'],))
	        print('locked' if cursor.fetchone()[0] is True else '?')
	    except DRIVER.Error as error:
	        print(getattr(error, 'pgcode', None) or error.sqlstate)
	    cursor.execute("SELECT string_agg(name, ' ' ORDER BY name) FROM zk_session_locks")
	    print(cursor.fetchone()[0])
	    cursor.execute('SELECT zk_unlock_all()')
	PYTHON

my $in_ruby = <<~'RUBY';
	require 'pg'
	connection = PG.connect(ARGV[0])
	list = PG::TextEncoder::Array.new.encode(%w[acct-1 acct-2])
	['', '::text[]'].each do |cast|
	  begin
	    puts connection.exec_params("SELECT zk_try_lock($1#{cast})", [list]).getvalue(0, 0) == 't' ? 'locked' : '?'
	  rescue PG::Error => error
	    puts error.result.error_field(PG::PG_DIAG_SQLSTATE)
	  end
	  puts connection.exec("SELECT string_agg(name, ' ' ORDER BY name) FROM zk_session_locks").getvalue(0, 0).to_s
	  connection.exec('SELECT zk_unlock_all()')
	end
	RUBY

my $in_java = <<~'JAVA';
	import java.sql.*;
	class Lists {
	    public static void main(String[] args) throws Exception {
	        Connection connection = DriverManager.getConnection(args[0]);
	        for (String cast : new String[] {"", "::text[]"}) {
	            try (PreparedStatement lock = connection.prepareStatement("SELECT zk_try_lock(?" + cast + ")")) {
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
	JAVA

my $in_go = <<~'GO';
	package main

	import (
		"database/sql"
		"fmt"
		"os"

		"github.com/lib/pq"
	)

	func main() {
		db, err := sql.Open("postgres", os.Args[1])
		if err != nil {
			panic(err)
		}
		db.SetMaxOpenConns(1)
		for _, cast := range []string{"", "::text[]"} {
			var granted bool
			err := db.QueryRow("SELECT zk_try_lock($1"+cast+")", pq.Array([]string{"acct-1", "acct-2"})).Scan(&granted)
			if refusal, is := err.(*pq.Error); is {
				fmt.Println(refusal.Code)
			} else if err == nil && granted {
				fmt.Println("locked")
			} else {
				fmt.Println("?")
			}
			var names sql.NullString
			db.QueryRow("SELECT string_agg(name, ' ' ORDER BY name) FROM zk_session_locks").Scan(&names)
			fmt.Println(names.String)
			db.Exec("SELECT zk_unlock_all()")
		}
	}
	GO

sub file ($name, $text)
{
	append_to_file("$directory/$name", $text);
	return "$directory/$name";
}

# What the program says: for the list alone, then with a cast, the outcome and the locks held.
sub outcome (@command)
{
	my $status = run_program(@command);
	return join ' | ', $status, map { s/^(None|null)$//r } split /\n/, last_output();
}

my $taken = 'locked | acct-1 acct-2';
my $refused = '42602 | ';
my $dsn = "host=127.0.0.1 port=$port dbname=postgres user=$user";
my $packages = '/usr/lib/python3/dist-packages';
my $has_psycopg = 'import importlib.util, sys; sys.exit(importlib.util.find_spec("psycopg") is None)';

subtest 'psycopg2 sends a list as an array' => sub {
	plan skip_all => 'not installed: python3-psycopg2' if !-d "$packages/psycopg2";
	is(outcome('/usr/bin/python3', file('two.py', $in_python =~ s/DRIVER/psycopg2/gr), $dsn),
		"0 | $taken | $taken", 'writes an array');
};

subtest 'psycopg 3 needs a cast for a list of names' => sub {
	plan skip_all => 'not installed: python3-psycopg' if system('/usr/bin/python3', '-c', $has_psycopg) != 0;
	is(outcome('/usr/bin/python3', file('three.py', $in_python =~ s/DRIVER/psycopg/gr), $dsn),
		"0 | $refused | $taken", 'needs a cast');
};

subtest 'pg of Ruby needs a cast for a list of names' => sub {
	plan skip_all => 'not installed: ruby-pg'
	  if !-e '/usr/bin/ruby' || system('ruby', '-e', 'begin; require "pg"; rescue LoadError; exit 1; end') != 0;
	is(outcome('ruby', file('lists.rb', $in_ruby), $dsn), "0 | $refused | $taken", 'needs a cast');
};

# Without an encoder it writes what Ruby prints. With a cast that is no array.
subtest 'pg of Ruby without an encoder is refused with and without a cast' => sub {
	plan skip_all => 'not installed: ruby-pg'
	  if !-e '/usr/bin/ruby' || system('ruby', '-e', 'begin; require "pg"; rescue LoadError; exit 1; end') != 0;
	my $plain = $in_ruby =~ s/PG::TextEncoder::Array\.new\.encode\((.*?)\)/$1/r;
	is(outcome('ruby', file('plain.rb', $plain), $dsn), '0 | 42602 |  | 22P02', 'is refused in each way');
};

subtest 'JDBC sends a list as an array' => sub {
	my $driver = '/usr/share/java/postgresql.jar';
	plan skip_all => 'not installed: libpostgresql-jdbc-java' if !-e $driver || !-e '/usr/bin/java';
	is(outcome('java', '-cp', $driver, file('Lists.java', $in_java), "jdbc:postgresql://127.0.0.1:$port/postgres?user=$user"),
		"0 | $taken | $taken", 'names the type of the array');
};

subtest 'lib/pq needs a cast for a list of names' => sub {
	plan skip_all => 'not installed: golang-github-lib-pq-dev'
	  if !-e '/usr/bin/go' || !-d '/usr/share/gocode/src/github.com/lib/pq';
	local %ENV = (%ENV, Peer::go_environment());
	is(system('go', 'build', '-o', "$directory/lists", file('lists.go', $in_go)), 0, 'it compiles');
	is(outcome("$directory/lists", "postgres://$user\@127.0.0.1:$port/postgres?sslmode=disable"),
		"0 | $refused | $taken", 'needs a cast');
};

subtest 'docs/recipes.md lists the drivers' => sub {
	my $page = slurp_file(dirname(__FILE__) . '/../../docs/recipes.md');
	like($page, qr/^\| \Q$_\E[^|]*\| /m, $_) foreach 'psycopg 3', 'psycopg2', 'node-postgres', 'postgres.js', 'lib/pq', 'JDBC', 'pg (Ruby)', 'Rails';
	is(ask($berlin, "SELECT zk_try_lock('acct-1,acct-2') AND zk_unlock('acct-1,acct-2')"), 't',
		'a list with commas alone is an ordinary name');
};

done_testing();
