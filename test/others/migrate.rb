# A migration with Rails, for t/512: migrate.rb URL; or with "key" behind that the key of its
# advisory lock, with "dump" the schema.rb that it would write. A migration says how many locks
# its own connection holds.
require 'active_record'
ActiveRecord::Base.establish_connection(ARGV[0])
class Work < ActiveRecord::Migration[6.1]
  def up
    create_table(:migrated) { |t| t.string :what }
    puts "#{select_value('SELECT count(*) FROM zklock.zk_session_locks')} locks here"
  end
end
if ARGV[1] == 'dump'
  ActiveRecord::SchemaDumper.dump
  exit
end
# What it takes differs between 6.1, 7.1 and 7.2.
def migrator(work)
  tables = [ActiveRecord::SchemaMigration]
  if !tables[0].respond_to?(:create_table)
    base = ActiveRecord::Base
    where = base.respond_to?(:with_connection) ? base.connection_pool : base.connection
    tables = [ActiveRecord::SchemaMigration.new(where), ActiveRecord::InternalMetadata.new(where)]
  end
  ActiveRecord::Migrator.new(:up, work, *tables)
end
if ARGV[1] == 'key'
  puts migrator([]).send(:generate_migrator_advisory_lock_id)
  exit
end
work = Work.new('Work', 20261120000000)
ActiveRecord::Migration.verbose = false
migrator([work]).migrate
puts 'migrated'
