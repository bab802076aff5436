/*-------------------------------------------------------------------------
 *
 * test_program_plain.c
 *	  Unit tests of src/program/program_plain.c: what program_tls.h declares, in a
 *	  program without TLS.
 *
 *-------------------------------------------------------------------------
 */
#include "program_tls.h"

#include <string.h>
#include <unistd.h>

#include "tap.h"

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
	return done_testing();
}
