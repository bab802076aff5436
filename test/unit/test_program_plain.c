/*-------------------------------------------------------------------------
 *
 * test_program_plain.c
 *	  Unit tests of src/program/program_plain.c: what program_tls.h declares, in a
 *	  program without TLS.
 *
 *-------------------------------------------------------------------------
 */
#include "program_tls.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tap.h"

/* Both ends of a connection, the first of which is gathered. */
static int	ours;
static int	theirs;

static void
begin(void)
{
	int			ends[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) != 0)
		exit(1);
	ours = ends[0];
	theirs = ends[1];
	tls_gather(ours);
}

static void
end(void)
{
	tls_gather(-1);
	close(ours);
	close(theirs);
}

/* What our end is polled for, and whether that is there now. */
static int
poll_ours(short events)
{
	struct pollfd polled = {.fd = ours,.events = events};
	int			nready = tls_poll(&polled, 1, 0);

	is_int(polled.revents != 0, nready, "as many are ready as have events");
	return polled.revents;
}

/* How many bytes there are at their end, at most size; -1: none. */
static int
take_theirs(char *bytes, size_t size)
{
	return (int) read(theirs, bytes, size);
}

static void
test_sending(void)
{
	char		bytes[100];

	begin();
	is_int(3, (int) send(ours, "one", 3, 0), "what is sent is taken");
	is_int(3, (int) send(ours, "two", 3, 0), "and the next");
	is_int(-1, take_theirs(bytes, sizeof(bytes)), "nothing goes out at once");
	is_int(0, poll_ours(POLLIN), "nothing comes");
	is_int(6, take_theirs(bytes, sizeof(bytes)), "it goes out with the next poll, together");
	ok(memcmp(bytes, "onetwo", 6) == 0, "in its order");
	(void) send(ours, "three", 5, 0);
	tls_gather(-1);
	is_int(5, take_theirs(bytes, sizeof(bytes)), "what waits goes out when nothing is gathered any more");
	(void) send(ours, "four", 4, 0);
	is_int(4, take_theirs(bytes, sizeof(bytes)), "and what is sent then at once");
	end();
}

/* More than the socket takes. */
static void
test_full(void)
{
	static char many[10000];
	static char taken[sizeof(many)];
	size_t		nsent = 0;
	size_t		ntaken = 0;
	ssize_t		length;
	bool		is_in_order = true;

	begin();
	while ((length = send(ours, many, sizeof(many), 0)) > 0)
	{
		nsent += (size_t) length;
		memset(many, (int) (nsent / sizeof(many)), sizeof(many));
		(void) poll_ours(POLLIN);
	}
	is_int(EAGAIN, errno, "when the socket takes no more there is no room in the end");
	is_int(0, poll_ours(POLLIN), "that it takes none is no news for who does not ask");
	while (ntaken < nsent)
	{
		int			n = take_theirs(taken, sizeof(taken));

		if (n > 0)
			ntaken += (size_t) n;
		for (int i = 1; i < n; i++)
			is_in_order &= taken[i] >= taken[i - 1] || taken[i - 1] == 127;
		is_int(0, poll_ours(POLLIN), "nothing comes");
	}
	is_int((int) nsent, (int) ntaken, "all that was taken arrives");
	ok(is_in_order, "in its order");
	is_int(POLLOUT, poll_ours(POLLOUT), "then there is room, for who asks");
	end();
}

static void
test_receiving(void)
{
	char		bytes[100] = "";

	begin();
	is_int(-1, (int) recv(ours, bytes, sizeof(bytes), 0), "nothing is there");
	if (write(theirs, "onetwo", 6) != 6)
		exit(1);
	is_int(POLLIN, poll_ours(POLLIN), "something has come");
	is_int(3, (int) recv(ours, bytes, 3, MSG_PEEK), "a look at it");
	is_int(3, (int) recv(ours, bytes, 3, 0), "the first part");
	ok(memcmp(bytes, "one", 3) == 0, "as it was sent");
	is_int(POLLIN, poll_ours(POLLIN), "what was read ahead is there, too");
	is_int(0, poll_ours(POLLOUT) & POLLIN, "for who asks");
	is_int(3, (int) recv(ours, bytes, sizeof(bytes), 0), "the second part");
	ok(memcmp(bytes, "two", 3) == 0, "as it was sent");
	is_int(-1, (int) recv(ours, bytes, sizeof(bytes), 0), "then nothing is there");
	is_int(EAGAIN, errno, "EAGAIN");
	is_int(0, poll_ours(POLLIN), "nothing more comes");
	if (write(theirs, "last", 4) != 4)
		exit(1);
	shutdown(theirs, SHUT_WR);
	is_int(POLLIN, poll_ours(POLLIN) & POLLIN, "something comes with the end");
	is_int(2, (int) recv(ours, bytes, 2, 0), "a part of it");
	tls_gather(-1);
	is_int(2, (int) recv(ours, bytes, sizeof(bytes), 0), "the rest, also when nothing is gathered any more");
	is_int(0, (int) recv(ours, bytes, sizeof(bytes), 0), "and the end");
	end();
}

/* The library finds that a connection has failed by its end. */
static void
test_failing(void)
{
	char		bytes[100];

	begin();
	close(theirs);
	is_int(3, (int) send(ours, "one", 3, 0), "it is not known yet that it has failed");
	ok((poll_ours(POLLIN) & POLLIN) != 0, "then there is its end");
	is_int(0, (int) recv(ours, bytes, sizeof(bytes), 0), "the end");
	close(ours);
	begin();
	is_int(-1, take_theirs(bytes, sizeof(bytes)), "nothing is left of it for the next one");
	if (write(theirs, "new", 3) != 3)
		exit(1);
	is_int(POLLIN, poll_ours(POLLIN), "which has what comes");
	is_int(3, (int) recv(ours, bytes, sizeof(bytes), 0), "all of it");
	tls_leave();
	(void) send(ours, "one", 3, 0);
	is_int(3, take_theirs(bytes, sizeof(bytes)), "in a child process nothing is gathered");
	end();
}

int
main(int argc, char **argv)
{
	char		why[TLS_WHY_SIZE] = "";
	char		text[100] = "something";
	int			ends[2];
	struct pollfd polled;
	int64_t		received_at = 0;

	ok(!tls_begin("/nowhere\n\n\n\n2\n", why), "the program has no TLS");
	ok(strstr(why, "without TLS") != NULL, "why");
	tls_expect(NULL, NULL, 0);
	tls_leave();
	if (pipe(ends) != 0 || write(ends[1], "x", 1) != 1)
		return 1;
	polled = (struct pollfd) {.fd = ends[0], .events = POLLIN};
	is_int(1, tls_poll(&polled, 1, 0), "what there is to read is there");
	is_int(POLLIN, polled.revents, "POLLIN");
	ok(!tls_is_used(ends[0]), "no connection has TLS");
	is_str("", tls_error(ends[0]), "nor an error of it");
	is_int(ends[0], tls_socket(ends[0], &received_at), "its socket is its own");
	ok(received_at == INT64_MAX, "whatever has come has come from the server");
	is_str("", tls_describe(ends[0], text, sizeof(text)), "it has no files");
	is_str("", text, "it is not described");
	test_sending();
	test_full();
	test_receiving();
	test_failing();
	return done_testing();
}
