
=pod

=head1 NAME

Preload - libraries that stand before others in a cluster's processes

=head1 SYNOPSIS

  my $odd = Preload::odd_names() or plan skip_all => 'there is no compiler';
  my $node = cluster('berlin', $zk, environment => { LD_PRELOAD => $odd });

=cut

package Preload;

use v5.36;

use PostgreSQL::Test::Utils qw(append_to_file);

=pod

=head1 FUNCTIONS

=head2 library($text)

The path of a library with that text, which is in C; undef without a compiler.

=head2 odd_names

With this one the look-up of a name that begins with "slow" takes for ever. Nothing can bound
it. The name "twice" has two addresses: 127.0.0.2, and then 127.0.0.1.

=cut

sub library ($text)
{
	my $library = PostgreSQL::Test::Utils::tempdir() . '/preload.so';
	append_to_file("$library.c", "#define _GNU_SOURCE\n$text");
	return system('cc', '-shared', '-fPIC', '-o', $library, "$library.c", '-ldl') == 0 ? $library : undef;
}

sub odd_names
{
	return library(<<'C');
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>

int
getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
			struct addrinfo **result)
{
	int			(*libc) (const char *, const char *, const struct addrinfo *,
						 struct addrinfo **) = dlsym(RTLD_NEXT, "getaddrinfo");

	while (host != NULL && strncmp(host, "slow", 4) == 0)
		sleep(60);
	if (host != NULL && strcmp(host, "twice") == 0)
	{
		if (libc("127.0.0.2", service, hints, result) != 0)
			return EAI_FAIL;
		while (*result != NULL)
			result = &(*result)->ai_next;
		host = "127.0.0.1";
	}
	return libc(host, service, hints, result);
}
C
}

1;
