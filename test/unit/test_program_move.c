/*-------------------------------------------------------------------------
 *
 * test_program_move.c
 *	  Unit test of src/program/program_move.c: a session that lives moves to other
 *	  servers only when these have proved that they know it.  This test is such a
 *	  server (fake_library.h has the rest).
 *
 *-------------------------------------------------------------------------
 */
#include "fake_library.h"

#include <arpa/inet.h>

#include "settings_page.h"

/* A session waits that long before it follows: see drand48() of the library. */
#define DELAY_MS (TIMEOUT_MS / 10 / 2)

/* The server, the list that names it, and its connection. */
static int	listener = -1;
static char ours[SERVERS_ADDRESS_SIZE];
static int	connection = -1;
static unsigned char asked[100];

static void
listen_anywhere(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET,.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t	size = sizeof(address);

	/* above the descriptors of the program */
	listener = fcntl(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), F_DUPFD, 50);
	ok(bind(listener, (struct sockaddr *) &address, sizeof(address)) == 0 &&
	   listen(listener, 5) == 0 &&
	   getsockname(listener, (struct sockaddr *) &address, &size) == 0, "a server");
	snprintf(ours, sizeof(ours), "127.0.0.1:%d", ntohs(address.sin_port));
}

/* The backend says that these are the servers. */
static void
give(const char *servers, const char *tls)
{
	FrameTaken	taken = {.frame.kind = FRAME_SERVERS,.blobs = {servers, tls}};

	ok(command_take(session, &taken), "given %s", servers);
}

/* What is due, and what has happened to the connection. */
static void
turn(int64_t ms)
{
	struct pollfd polled[MOVE_NPOLLED];

	boot_ms += ms;
	session->wake_at = INT64_MAX;
	move_tick(session, boot_ms);
	move_poll(session, polled);
	poll(polled, MOVE_NPOLLED, 20);
	move_hear(session, polled);
}

static bool
is_called(void)
{
	if (connection >= 0)
		close(connection);
	connection = accept(listener, NULL, NULL);
	return connection >= 0;
}

/* Is there a request to connect, over a connection that is taken here? */
static bool
is_asked(void)
{
	ssize_t		received = -1;

	for (int i = 0; i < 100 && !is_called(); i++)
		turn(0);
	for (int i = 0; i < 100 && connection >= 0 && received < 0; i++)
	{
		turn(0);
		received = recv(connection, asked, sizeof(asked), MSG_DONTWAIT);
	}
	return received == 49;
}

/* Answer it: with that timeout, for that session; servers before 3.4 leave out a byte. */
static uint32_t answer_size = 37;

static void
grant(int timeout_ms, int64_t id)
{
	unsigned char reply[41] = {0};
	uint32_t	words[] = {
		htonl(answer_size), 0, htonl((uint32_t) timeout_ms), htonl((uint32_t) (id >> 32)),
		htonl((uint32_t) id), htonl(16)
	};

	memcpy(reply, words, sizeof(words));
	ok(send(connection, reply, 4 + answer_size, 0) == 4 + answer_size, "the server answers");
	for (int i = 0; i < 10; i++)
		turn(0);
}

/* What is told of it; -1: nothing. */
static int
told(void)
{
	FrameTaken	frame;

	while ((frame = next_frame()).frame.kind != 0)
		if (frame.frame.kind == FRAME_MOVE)
			return frame.frame.u.move.outcome;
	return -1;
}

static bool
uses(const char *host_port)
{
	const Server *server = &names_list(session->names)->servers[0];
	char		text[300];

	snprintf(text, sizeof(text), "%s:%d", server->host, server->port);
	return strcmp(text, host_port) == 0;
}

static void
begin(void)
{
	open_and_connect(THREE);
	(void) count_frames(FRAME_STATUS);
}

static uint32_t
word_at(int at)
{
	uint32_t	word;

	memcpy(&word, asked + at, sizeof(word));
	return ntohl(word);
}

static void
test_proved(void)
{
	begin();
	give(ours, NULL);
	turn(DELAY_MS - 1);
	ok(!is_called(), "the new server is not asked before the delay is over");
	turn(1);
	ok(is_asked(), "the new server is asked");
	is_int(45, word_at(0), "a request to connect");
	is_int(TIMEOUT_MS, word_at(16), "the request to connect has the session timeout");
	is_int(4711, word_at(24), "the request to connect has the id of the session");
	is_int(16, word_at(28), "the length");
	ok(memcmp(asked + 32, "0123456789abcde", 16) == 0, "the request to connect has the password of the session");
	ok(session->link.attempt.cut == LINK_NOT_CUT && uses("127.0.0.1:1"), "nothing has changed until it answers");
	grant(TIMEOUT_MS, 4711);
	is_int(ZK_MOVE_DONE, told(), "a server that knows the session is told to the backend");
	ok(uses(ours), "the servers are used");
	ok(session->link.attempt.cut == LINK_CUT_FOR_OTHERS, "the connection is cut");
	is_int(0, recv(connection, asked, 1, MSG_DONTWAIT), "the one that has proved it is closed, without a word");
}

/* The leader goes by what was granted last. */
static void
test_timeout(void)
{
	begin();
	give(ours, NULL);
	turn(DELAY_MS);
	ok(is_asked(), "asked");
	grant(TIMEOUT_MS / 2, 4711);
	is_int(ZK_MOVE_DONE, told(), "a server grants a shorter timeout");
	is_int(TIMEOUT_MS / 2, session->status.session_timeout_ms, "the session has it at once");

	begin();
	give(ours, NULL);
	turn(DELAY_MS);
	ok(is_asked(), "asked");
	grant(TIMEOUT_MS * 2, 4711);
	is_int(ZK_MOVE_DONE, told(), "another one grants a longer one");
	is_int(TIMEOUT_MS, session->status.session_timeout_ms, "the session has the longer timeout with the next connection");
}

/* What is under way has a second. */
static void
test_under_way(void)
{
	begin();
	give(ours, NULL);
	turn(DELAY_MS);
	ok(is_asked(), "asked");
	session->traffic.npending = 1;
	grant(TIMEOUT_MS, 4711);
	ok(uses(ours) && session->link.attempt.cut == LINK_NOT_CUT, "the connection is left to a request");
	turn(999);
	ok(session->link.attempt.cut == LINK_NOT_CUT, "the connection is left to a request for a second");
	turn(1);
	ok(session->link.attempt.cut == LINK_CUT_FOR_OTHERS, "the connection is left to a request no longer than a second");
	session->traffic.npending = 0;
}

static void
test_unknown(void)
{
	begin();
	give(ours, NULL);
	turn(DELAY_MS);
	ok(is_asked(), "asked");
	grant(0, 0);
	is_int(ZK_MOVE_UNKNOWN, told(), "a server that does not know the session is told to the backend");
	ok(uses("127.0.0.1:1") && session->link.attempt.cut == LINK_NOT_CUT, "the old servers and connection stay after an unknown session");
	is_int(INT64_MAX, session->wake_at, "nothing is due any more after an unknown session");
	is_int(ZK_CLIENT_CONNECTED, session->status.state, "the session stays connected after an unknown session");
	give(ours, NULL);
	turn(DELAY_MS);
	ok(!is_called(), "the same list is not tried again");
	give(THREE, NULL);
	give(ours, NULL);
	turn(DELAY_MS);
	ok(is_asked(), "the list is tried again after another list");
}

static void
test_no_answer(void)
{
	begin();
	give(ours, NULL);
	turn(DELAY_MS);
	ok(is_asked(), "asked");
	grant(TIMEOUT_MS, 4712);
	is_int(-1, told(), "an answer for another session is none");
	turn(60000);
	ok(is_asked(), "a server that answered for another session is asked again");
	close(connection);
	connection = -1;
	turn(0);
	is_int(-1, told(), "a server that closes the connection is no answer");
	turn(60000);
	ok(is_asked(), "a server that closed the connection is asked again");
	turn(10000);
	is_int(ZK_MOVE_SILENT, told(), "a third time in vain is told");
	ok(uses("127.0.0.1:1") && session->link.attempt.cut == LINK_NOT_CUT, "the old servers and connection stay after three silent attempts");
	turn(60000);
	ok(is_asked(), "a server that was silent three times is asked again");
	grant(TIMEOUT_MS, 4711);
	is_int(ZK_MOVE_DONE, told(), "a server that knows the session at last is moved to");
}

/* Whose text the told frame has. */
static const char *
told_text(int outcome)
{
	static char text[1000];
	FrameTaken	frame;

	while ((frame = next_frame()).frame.kind != 0)
		if (frame.frame.kind == FRAME_MOVE && (int) frame.frame.u.move.outcome == outcome)
		{
			snprintf(text, sizeof(text), "%s", frame.blobs[0]);
			is_str(NULL, frame.blobs[2], "what is told of a list without TLS has none");
			return text;
		}
	return "nothing of the kind";
}

/* Ids of more than 32 bits, answers without the last byte, and what looks like an answer. */
static void
test_answers(void)
{
	const int64_t id = 0x100000007;
	struct linger linger = {1, 0};
	struct pollfd polled[MOVE_NPOLLED];

	begin();
	session->status.ticket.session_id = id;
	give(ours, NULL);
	turn(DELAY_MS);
	ok(is_asked() && word_at(20) == 1 && word_at(24) == 7, "a server is asked for an id of more than 32 bits");
	move_poll(session, polled);
	polled[0].revents = 0;
	polled[1].revents = POLLIN;
	move_hear(session, polled);
	answer_size = 36;
	grant(TIMEOUT_MS, id);
	answer_size = 37;
	is_int(ZK_MOVE_DONE, told(), "an answer without the last byte proves it, after a wake-up for nothing");

	begin();
	give(ours, NULL);
	turn(DELAY_MS);
	ok(is_asked(), "a server is asked, and resets the connection");
	setsockopt(connection, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	close(connection);
	connection = -1;
	turn(0);
	turn(60000);
	ok(is_asked(), "a server that has reset the connection is asked again");
	grant(TIMEOUT_MS, 4711);
	is_int(ZK_MOVE_DONE, told(), "a server that has reset the connection may know the session");
}

/* Three answers of what is no ZooKeeper are told, with that reason. */
static void
test_stranger(void)
{
	const char *text;

	begin();
	give(ours, NULL);
	for (int round = 0; round < 3; round++)
	{
		turn(60000);
		ok(is_asked(), "a stranger is asked");
		grant(TIMEOUT_MS, 4712);
	}
	text = told_text(ZK_MOVE_SILENT);
	ok(strstr(text, "is not ZooKeeper") != NULL, "a stranger is told of as one: %s", text);
}

/* The delay is a part of the session timeout, up to two seconds. */
static void
test_delay(void)
{
	begin();
	session->status.session_timeout_ms = 10 * TIMEOUT_MS;
	give(ours, NULL);
	turn(999);
	ok(!is_called(), "with a long session timeout a server is not asked at once");
	turn(1);
	ok(is_asked(), "with a long session timeout a server is asked after half of two seconds");
}

/* Each list at which nobody listens is told once, with the reason. */
static void
test_nobody(void)
{
	static const char *const lists[] = {"127.0.0.1:9", "127.0.0.1:19"};

	begin();
	for (int i = 0; i < 2; i++)
	{
		const char *text;

		give(lists[i], NULL);
		for (int round = 0; round < 3; round++)
			turn(60000);
		text = told_text(ZK_MOVE_SILENT);
		ok(strstr(text, lists[i]) != NULL && strstr(text, "cannot be reached") != NULL,
		   "a list at which nobody listens is told of with the reason: %s", text);
		turn(60000);
		is_int(-1, told(), "a list at which nobody listens is told of once");
	}
}

/* How long a server has for its answer, and where a round begins. */
static void
test_patience(void)
{
	struct pollfd polled[MOVE_NPOLLED];
	char		servers[100];

	begin();
	memset(polled, 1, sizeof(polled));
	move_poll(session, polled);
	for (int i = 0; i < MOVE_NPOLLED; i++)
		is_int(-1, polled[i].fd, "nothing is waited for while nothing is wanted");
	snprintf(servers, sizeof(servers), "%s,127.0.0.1:9", ours);
	session->open.first_server = 2;
	give(servers, NULL);
	turn(DELAY_MS);
	ok(is_asked(), "the first one is asked where rounds begin with the third of two");
	is_int(boot_ms + 2000, session->wake_at, "a server that is asked has two seconds for its answer");

	begin();
	disconnect_now(ZCONNECTIONLOSS);
	give(ours, NULL);
	turn(0);
	ok(is_asked(), "a server is asked without a connection");
	is_int(boot_ms + (session->early_deadline - boot_ms) / 4, session->wake_at,
		   "without a connection a server has a quarter of the time until the loss");

	begin();
	disconnect_now(ZCONNECTIONLOSS);
	boot_ms = session->early_deadline - 400;
	give(ours, NULL);
	turn(0);
	ok(is_asked(), "a server is asked shortly before the loss");
	is_int(boot_ms + 300, session->wake_at, "shortly before the loss a server has 300 ms");
}

/* What the postmaster's page says, if the backend follows it. */
static void
test_page(void)
{
	int			fd;
	SettingsPage *page = settings_page_make(&fd);
	FrameTaken	opening = opening_of(THREE);
	FrameTaken	taken = {.frame.kind = FRAME_SERVERS,.frame.u.servers.follows_page = true,.blobs = {THREE, NULL}};

	ok(page != NULL, "a page of settings is made");
	begin();
	session->settings = settings_page_map(fd);
	ok(command_take(session, &taken), "a list comes with the page that it is from");
	settings_page_write(page, ours, NULL);
	turn(0);
	is_int(boot_ms + SETTINGS_QUIET_MS, session->wake_at, "a page that has just changed is looked at again");
	turn(SETTINGS_QUIET_MS);
	turn(DELAY_MS);
	ok(is_asked(), "the server that the page names is asked");
	grant(TIMEOUT_MS, 4711);
	is_int(ZK_MOVE_DONE, told(), "it knows the session");
	ok(uses(ours), "the server that the page names is used");

	settings_page_write(page, "", NULL);
	turn(SETTINGS_QUIET_MS);
	turn(DELAY_MS);
	ok(uses(ours) && told() == -1, "a setting that names no server changes nothing");
	taken.frame.u.servers.follows_page = false;
	taken.blobs[0] = ours;
	ok(command_take(session, &taken), "a list comes that is not from the page");
	settings_page_write(page, THREE, NULL);
	turn(SETTINGS_QUIET_MS);
	is_int(INT64_MAX, session->wake_at, "what the page says then is nothing");

	/* a session that is opened with what the page says follows it from the start */
	opening.frame.u.open.follows_page = true;
	begin_session();
	session->settings = settings_page_map(fd);
	open_with(&opening);
	connect_now();
	(void) count_frames(FRAME_STATUS);
	settings_page_write(page, ours, NULL);
	turn(SETTINGS_QUIET_MS);
	turn(DELAY_MS);
	ok(is_asked(), "a session that is opened by the page follows it");
	session->settings = NULL;
}

/* The library receives an answer with that change, in pieces of that size. */
static void
hear(int fd, int64_t zxid, size_t length, size_t piece)
{
	unsigned char message[200] = {0};
	uint32_t	words[] = {
		htonl((uint32_t) length), htonl(7), htonl((uint32_t) ((uint64_t) zxid >> 32)), htonl((uint32_t) zxid)
	};

	memcpy(message, words, sizeof(words));
	for (size_t at = 0; at < 4 + length; at += piece)
		around.overhear(session, fd, message + at, 4 + length - at < piece ? 4 + length - at : piece);
}

/* What the library will say of it when it connects again. */
static void
test_overheard(void)
{
	begin();
	session->link.fd = 40;
	session->link.attempt.socket = 1;
	hear(40, 0x700000000, 36, 40);
	is_int(0, session->seen_zxid, "the answer to the request to connect tells of no change");
	hear(40, 0x100000005, 16, 20);
	is_int(0x100000005, session->seen_zxid, "an answer does");
	hear(40, 0x100000006, 100, 1);
	is_int(0x100000006, session->seen_zxid, "byte by byte");
	hear(40, 0x100000007, 100, 7);
	hear(40, -1, 60, 64);
	hear(40, 0x100000004, 16, 3);
	hear(40, 0, 0, 4);
	hear(40, 0, 4, 4);
	is_int(0x100000007, session->seen_zxid, "the latest of all, whatever comes behind it");
	hear(41, 0x100000009, 16, 20);
	is_int(0x100000007, session->seen_zxid, "answers over another connection do not count as seen");
	around.overhear(session, 40, "\0\0", 2);
	session->link.attempt.socket = 2;
	hear(40, 0x700000000, 36, 40);
	hear(40, 0x100000008, 16, 20);
	is_int(0x100000008, session->seen_zxid, "answers over the library's next connection count as seen");
	session->link.fd = -1;
}

/* A server that closes the connection may do so for what the session has seen. */
static void
test_seen(void)
{
	begin();
	session->seen_zxid = 0x100000002;
	give(ours, NULL);
	turn(DELAY_MS);
	ok(is_asked(), "asked");
	is_int(1, word_at(8), "the request to connect has the upper half of the last zxid seen");
	is_int(2, word_at(12), "the request to connect has the lower half of the last zxid seen");
	close(connection);
	connection = -1;
	ok(is_asked(), "a server that closes the connection is asked again");
	is_int(0, word_at(12), "the second request to connect is without the last zxid");
	grant(TIMEOUT_MS, 4711);
	ok(told() == -1 && uses("127.0.0.1:1"), "a session granted without the last zxid is no proof");
	turn(60000);
	ok(is_asked() && word_at(12) == 2, "the next question has the last zxid again");
	close(connection);
	connection = -1;
	ok(is_asked() && word_at(12) == 0, "the question after that is without the last zxid again");
	grant(0, 0);
	is_int(ZK_MOVE_UNKNOWN, told(), "a server may not know the session without the last zxid either");
}

static void
test_tls(void)
{
	begin();
	around.bad_files = "There is no such file";
	give(ours, "files");
	turn(DELAY_MS);
	is_int(ZK_MOVE_TLS, told(), "TLS cannot be had");
	ok(!is_called(), "no server is asked without TLS");
	turn(60000);
	is_int(-1, told(), "the missing TLS is told once");
	around.bad_files = "";
	around.ntls_ended = 0;
	turn(60000);
	ok(is_asked(), "the server is asked when TLS can be had");
	is_int(1, around.ntls_ended, "the library goes on without meanwhile");
	grant(TIMEOUT_MS, 4711);
	is_int(ZK_MOVE_DONE, told(), "the server asked with TLS knows the session");
	is_int(1, around.ntls_ended, "the library has TLS after the move");
	ok(session->link.attempt.cut == LINK_CUT_FOR_OTHERS, "over another connection");

	begin();
	give(THREE, "files");
	turn(DELAY_MS);
	ok(uses("127.0.0.1:1") && told() == -1, "the same server has to prove itself with TLS");

	begin();
	give(ours, "files");
	turn(DELAY_MS);
	ok(is_asked(), "TLS again");
	grant(TIMEOUT_MS, 4711);
	is_int(ZK_MOVE_DONE, told(), "the session is moved with TLS again");
	strcpy(session->server, ours);
	session->link.attempt.cut = LINK_NOT_CUT;
	give(ours, "other files");
	turn(DELAY_MS);
	is_int(-1, told(), "other files are not taken for a connected server without a question");
	ok(is_asked(), "the connected server is asked with the other files");
	grant(TIMEOUT_MS, 4711);
	is_int(ZK_MOVE_DONE, told(), "the other files are taken when the server has answered");
	ok(session->link.attempt.cut == LINK_CUT_FOR_OTHERS, "over another connection");
}

static void
test_without_proof(void)
{
	begin();
	give("127.0.0.1:9,127.0.0.1:1", NULL);
	turn(DELAY_MS);
	is_int(ZK_MOVE_DONE, told(), "a list with the server that is connected");
	ok(uses("127.0.0.1:9") && session->link.attempt.cut == LINK_NOT_CUT, "is used, and the connection stays");

	begin();
	disconnect_now(ZCONNECTIONLOSS);
	give("127.0.0.1:3,127.0.0.1:9", NULL);
	turn(0);
	is_int(ZK_MOVE_DONE, told(), "without a connection a list that has any server of before is used at once");

	open_session(THREE);
	(void) count_frames(FRAME_STATUS);
	give(ours, NULL);
	turn(0);
	is_int(ZK_MOVE_DONE, told(), "any list is used at once before there is a session");
	ok(!is_called() && uses(ours), "no server is asked before there is a session");

	begin();
	give(THREE, NULL);
	turn(DELAY_MS);
	is_int(-1, told(), "the same list makes no move");
}

int
main(void)
{
	listen_anywhere();
	test_proved();
	test_timeout();
	test_under_way();
	test_unknown();
	test_no_answer();
	test_answers();
	test_stranger();
	test_delay();
	test_nobody();
	test_patience();
	test_page();
	test_overheard();
	test_seen();
	test_tls();
	test_without_proof();
	return done_testing();
}
