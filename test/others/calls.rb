# What calls.py does, with pg: ruby calls.rb CONNECT-STRING FILE. A list plain:a,b is not encoded.
require 'pg'
connection = PG.connect(ARGV[0])
File.foreach(ARGV[1], chomp: true) do |line|
  sql, *parameters = line.split("\t")
  values = parameters.map do |parameter|
    kind, value = parameter.split(':', 2)
    case kind
    when 'l' then PG::TextEncoder::Array.new.encode(value.split(','))
    when 'plain' then value.split(',')
    else value
    end
  end
  number = 0
  begin
    connection.exec_params(sql.gsub('?') { "$#{number += 1}" }, values)
    outcome = 'done'
  rescue PG::Error => error
    outcome = error.result.error_field(PG::PG_DIAG_SQLSTATE)
  end
  locks = connection.exec("SELECT string_agg(name, ' ' ORDER BY name) FROM zk_session_locks").getvalue(0, 0)
  puts "#{outcome}: #{locks || 'none'}"
  connection.exec('SELECT zk_unlock_all()')
end
