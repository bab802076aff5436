# What lists.py does, with pg: lists.rb CONNECT-STRING; with "plain" behind that the list is not
# encoded.
require 'pg'
connection = PG.connect(ARGV[0])
list = %w[acct-1 acct-2]
list = PG::TextEncoder::Array.new.encode(list) if ARGV[1] != 'plain'
%w[zk_try_lock zk_try_lock_set].each do |function|
  begin
    puts connection.exec_params("SELECT #{function}($1)", [list]).getvalue(0, 0) == 't' ? 'locked' : '?'
  rescue PG::Error => error
    puts error.result.error_field(PG::PG_DIAG_SQLSTATE)
  end
  puts connection.exec("SELECT string_agg(name, ' ' ORDER BY name) FROM zk_session_locks").getvalue(0, 0).to_s
  connection.exec('SELECT zk_unlock_all()')
end
