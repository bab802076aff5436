
=pod

=head1 NAME

Certificates - certificates for tests, made with openssl

=head1 SYNOPSIS

  my $authority = Certificates->new($directory, 'good');
  my $file = $authority->issue('server', 'DNS:localhost,IP:127.0.0.1');

=head1 DESCRIPTION

An authority is a directory with files NAME.pem, NAME.key, and NAME.both, which has
both.

=cut

package Certificates;

use v5.36;

use Carp;
use PostgreSQL::Test::Utils qw(slurp_file);
use Test::More;
use ZooKeeper;

=pod

=head1 FUNCTIONS

=head2 need_tls()

Skips the whole test where there is no TLS to be had.

=cut

sub need_tls
{
	plan skip_all => 'the servers have no Netty here (libnetty-java)' unless ZooKeeper::can_tls();
	plan skip_all => 'there is no openssl here' if system('openssl version >/dev/null 2>&1') != 0;
	return;
}

=pod

=head1 METHODS

=head2 new($directory, $name, $above, %option), at($directory, $name), ca

An authority of that name, made now or before; its certificate's file. One that has another
one above it is known to that as "below-$name", and may have options of issue().

=cut

sub at ($class, $directory, $name) { return bless { directory => $directory, name => $name }, $class; }

sub new ($class, $directory, $name, $above = undef, %option)
{
	my $self = $class->at($directory, $name);
	if ($above)
	{
		$above->issue("below-$name", undef, is_authority => 1, %option);
		_write($self->_file('ca.key'), slurp_file($above->key("below-$name")));
		_write($self->ca, slurp_file($above->cert("below-$name")));
		return $self;
	}
	_openssl(qw(req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 90),
		'-subj', "/CN=authority $name", '-keyout', $self->_file('ca.key'),
		'-out', $self->ca);
	return $self;
}

sub ca { return $_[0]->_file('ca.pem'); }

=pod

=head2 issue($name, $names, %option), cert($name), key($name), both($name)

A certificate of the subject /CN=$name, for these alternative names, if any. Options:
days, from now, which may be negative; phrase, of the key; is_authority.

=cut

sub issue ($self, $name, $names = undef, %option)
{
	my $request = $self->_file("$name.csr");
	my $extensions = $self->_file("$name.ext");
	my $days = $option{days} // 90;
	my $is_authority = $option{is_authority} ? 'TRUE' : 'FALSE';

	_write($extensions, "basicConstraints=CA:$is_authority\n" . ($names ? "subjectAltName=$names\n" : ''));
	_openssl(qw(req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1),
		$option{phrase} ? ('-passout', "pass:$option{phrase}") : '-nodes',
		'-subj', "/CN=$name", '-keyout', $self->key($name), '-out', $request);
	# What is over has begun before that.
	my @dates = $days > 0 ? (-days => $days) : ();
	if (@dates)
	{
		_openssl(qw(x509 -req), '-in', $request, '-CA', $self->ca, '-CAkey', $self->_file('ca.key'),
			'-CAcreateserial', @dates, '-extfile', $extensions, '-out', $self->cert($name));
	}
	else
	{
		$self->_configure;
		_openssl(qw(ca -batch -notext -config), $self->_file('ca.conf'),
			qw(-startdate 20200101000000Z -enddate 20200102000000Z),
			'-in', $request, '-extfile', $extensions, '-out', $self->cert($name));
	}
	chmod 0600, $self->key($name);
	_write($self->both($name), slurp_file($self->key($name)) . slurp_file($self->cert($name)));
	return $self->cert($name);
}

sub cert { return $_[0]->_file("$_[1].pem"); }
sub key { return $_[0]->_file("$_[1].key"); }
sub both { return $_[0]->_file("$_[1].both"); }

=pod

=head2 of_server($name)

What a server of L<ZooKeeper> takes as C<tls>, to show that certificate and know those of the
authority. The authority's certificate is a copy: a server from 3.9 on reads the file for each
connection, and a test may take that of the clients away.

=cut

sub of_server ($self, $name)
{
	my $copy = $self->_file('ca-of-servers.pem');
	_write($copy, slurp_file($self->ca));
	return { ca => $copy, cert => $self->both($name) };
}

=pod

=head2 settings($name)

The settings with which a cluster shows that certificate, and knows those of the authority.

=cut

sub settings ($self, $name)
{
	return (
		'zklock.ssl' => 'on',
		'zklock.ssl_ca_file' => $self->ca,
		'zklock.ssl_cert_file' => $self->cert($name),
		'zklock.ssl_key_file' => $self->key($name));
}

=pod

=head2 revoke($name, ...)

The file of a list that says that these certificates are not valid any more.

=cut

sub revoke ($self, @names)
{
	my $list = $self->_file('crl.pem');
	$self->_configure;
	_openssl(qw(ca -config), $self->_file('ca.conf'), '-revoke', $self->cert($_)) foreach @names;
	_openssl(qw(ca -config), $self->_file('ca.conf'), qw(-gencrl -out), $list);
	return $list;
}

=pod

=head2 old_list

The file of a list that should have been followed by another one long ago.

=cut

sub old_list ($self)
{
	my $list = $self->_file('old-crl.pem');
	$self->_configure;
	_openssl(qw(ca -config), $self->_file('ca.conf'),
		qw(-gencrl -crl_lastupdate 20200101000000Z -crl_nextupdate 20200102000000Z -out), $list);
	return $list;
}

=pod

=head2 make_all($directory)

What the tests find there that ZKLOCK_TEST_TLS tells to use TLS: test-ca.pem, and of
test-server and test-client .pem, .key and .both. Where there is libfaketime, which some
of them use, they are a month old by now: clocks may be behind.

=cut

sub make_all ($class, $directory)
{
	my ($faketime) = glob '/usr/lib/*/faketime/libfaketime.so.1';
	local %ENV = (%ENV, $faketime ? (LD_PRELOAD => $faketime, FAKETIME => '-30d') : ());
	my $authority = $class->new($directory, 'test');
	$authority->issue('server', 'DNS:localhost,IP:127.0.0.1,IP:127.0.0.2,IP:127.0.0.3,IP:::1');
	$authority->issue('client');
	return;
}

# What "openssl ca" needs.
sub _configure ($self)
{
	my $conf = $self->_file('ca.conf');
	return if -e $conf;
	_write($self->_file('index.txt'), '');
	_write($conf, <<"CONF");
[ca]
default_ca = this
[this]
database = @{[ $self->_file('index.txt') ]}
new_certs_dir = $self->{directory}
certificate = @{[ $self->ca ]}
private_key = @{[ $self->_file('ca.key') ]}
rand_serial = yes
default_md = sha256
default_days = 90
default_crl_days = 30
policy = any
[any]
commonName = supplied
CONF
	return;
}

sub _file ($self, $name = undef)
{
	return "$self->{directory}/$self->{name}-$name";
}

sub _openssl
{
	my @arguments = @_;
	open my $out, '-|', 'sh', '-c', 'exec "$0" "$@" 2>&1 </dev/null', 'openssl', @arguments
	  or croak "could not run openssl: $!";
	my $text = join '', readline $out;
	close $out or croak "openssl @arguments: $text";
	return;
}

sub _write ($path, $text = undef)
{
	open my $file, '>', $path or croak "could not write $path: $!";
	print $file $text;
	close $file or croak "could not write $path: $!";
	return;
}

1;
