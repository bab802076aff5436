
=pod

=head1 NAME

Bench::Block - zklock inside one DO block, with no round trip to a client

=cut

package Bench::Block;

use v5.36;

use parent 'Bench::Program';

sub lock { return "bench-$_[1]"; }

# Everything on one line, as the program "sql" wants it.
sub _block ($lock, $seconds)
{
	my $sql = <<"SQL";
DO \$\$
DECLARE
	ending timestamptz := clock_timestamp() + interval '$seconds s';
	requested timestamptz[];
	granted timestamptz[];
	released timestamptz[];
	t timestamptz;
BEGIN
	LOOP
		t := clock_timestamp();
		EXIT WHEN t > ending;
		requested := requested || t;
		PERFORM zk_lock('$lock');
		granted := granted || clock_timestamp();
		PERFORM zk_unlock('$lock');
		released := released || clock_timestamp();
	END LOOP;
	PERFORM set_config('bench.cycles', (
		SELECT string_agg(format('%s %s %s %s',
			(extract(epoch FROM r) * 1e6)::bigint,
			(extract(epoch FROM g) * 1e6)::bigint,
			(extract(epoch FROM g) * 1e6)::bigint,
			(extract(epoch FROM e) * 1e6)::bigint), E'\\n')
		FROM unnest(requested, granted, released) AS u(r, g, e)), false);
END
\$\$;
SELECT current_setting('bench.cycles');
SQL
	$sql =~ s/\s+/ /g;
	return $sql;
}

sub start_loop ($self, %loop)
{
	$self->order("all $loop{sessions} $self->{file}",
		_block($self->lock($loop{lock}), $loop{seconds}));
	return;
}

1;
