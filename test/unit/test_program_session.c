/*-------------------------------------------------------------------------
 *
 * test_program_session.c
 *	  Unit test of src/program/program_session.c and of the times in src/program/program_main.c, with a
 *	  library and clocks of the test's own (fake_library.h): how a session begins, is
 *	  suspended, connects again, is lost, and is closed.
 *
 * Needs no server.  The session timeout is 12,000 ms, unless said otherwise.
 *
 *-------------------------------------------------------------------------
 */
#include "fake_library.h"

#include <sys/wait.h>

static void
is_state(ZkClientState state, ZkClientLoss loss, const char *what)
{
	is_int(state, session->status.state, "%s: the state", what);
	is_int(loss, session->status.loss, "%s: the loss", what);
}

/* The session is suspended, and was in contact until now. */
static void
suspend_now(int code)
{
	open_and_connect(THREE);
	disconnect_now(code);
}

/* ---- the beginning ---- */

static void
test_opening(void)
{
	FrameTaken	opening = opening_of("127.0.0.1:1,127.0.0.1:2,127.0.0.1:3,127.0.0.1:4");

	begin_session();
	opening.frame.u.open.first_server = 1;
	open_with(&opening);
	is_state(ZK_CLIENT_CONNECTING, ZK_LOSS_NONE, "the session is opened");
	is_str("127.0.0.1:2,127.0.0.1:3,127.0.0.1:4,127.0.0.1:1,127.0.0.1:1", library.hosts,
		   "the servers, from the one that is to be the first");
	is_int(5, session->link.servers.naddresses, "the number of addresses is known");
	is_int(TIMEOUT_MS, library.asked_ms, "the session timeout that is asked for");
	ok(!library.has_id, "the library asks for a new session");
	is_int(-1, library.delay_ms, "the library resolves nothing");
	is_int(1, library.order, "the library keeps the order of the addresses");
	is_str("", library.auth, "an opening without credentials presents none");
	ok(!session->has_auth, "an opening without credentials has none");
	ok(!session_may_live(session), "a session that is opened has nothing to close yet");
	ok(!session_is_ending(session), "a session that is opened is not ending");
	is_int(ZK_CLIENT_CONNECTING, next_frame().frame.u.status.state, "the backend is told of the opening");

	begin_session();
	opening.frame.u.open.ticket.session_id = 99;
	memcpy(opening.frame.u.open.ticket.password, "fedcba987654321", 16);
	open_with(&opening);
	ok(library.has_id && library.asked_id.client_id == 99 &&
	   memcmp(library.asked_id.passwd, "fedcba987654321", 16) == 0, "the library takes the given session over");
	ok(session_may_live(session), "a session that is taken over is to be closed");
	library.is_over = true;
	ok(!session_may_live(session), "a session that is over is not to be closed");

	begin_session();
	opening.blobs[1] = "digest";
	opening.blobs[2] = "user:secret";
	open_with(&opening);
	is_str("digest user:secret", library.auth, "credentials are presented");
	ok(session->has_auth, "an opening with credentials has them");

	begin_session();
	opening.blobs[1] = PROTOCOL_CERTIFICATE;
	open_with(&opening);
	is_str("", library.auth, "a certificate is not presented as credentials");
	ok(session->has_auth, "a certificate counts as credentials");
}

/* Each reason why a session cannot be opened; the backend is told. */
static void
test_refused_opening(void)
{
	FrameTaken	opening;
	FrameTaken	frame;

	begin_session();
	opening = opening_of("zk1:0");
	open_with(&opening);
	is_state(ZK_CLIENT_LOST, ZK_LOSS_RESOLVE, "an opening with a list that makes no sense is lost");
	ok(strstr(session->last_error, "Port \"0\"") != NULL, "the last error tells what is wrong with the list: %s", session->last_error);
	is_int(ZK_LOSS_RESOLVE, atomic_load(&session->page->lost), "the page has the reason of the refused opening");
	is_int(boot_ms, session->status.lost_at, "the loss of a refused opening has its time");
	is_int(boot_ms, session->status.suspended_at, "a refused opening was not suspended before");
	frame = next_frame();
	ok(frame.frame.kind == FRAME_STATUS && frame.frame.u.status.loss == ZK_LOSS_RESOLVE &&
	   strstr(frame.blobs[1], "Port \"0\"") != NULL, "the frame has the reason and the error");
	ok(!session_may_live(session), "no session is to be closed after a refused opening");

	begin_session();
	opening = opening_of("[::ffff:127.0.0.1]:1");
	opening.blobs[3] = "files";
	around.bad_files = "There is no such file";
	open_with(&opening);
	is_state(ZK_CLIENT_LOST, ZK_LOSS_TLS, "an opening without its TLS files is lost");
	is_str("There is no such file", session->last_error, "the last error tells why there is no TLS");
	is_str("", library.hosts, "the library is not started");

	begin_session();
	opening = opening_of("127.0.0.1:1");
	library.has_no_room = true;
	open_with(&opening);
	is_state(ZK_CLIENT_LOST, ZK_LOSS_RESOURCES, "the library does not start");
	ok(strstr(session->last_error, strerror(ENOMEM)) != NULL, "the last error tells why the library does not start");
}

/* ---- names ---- */

/* Open a session, whose look-ups are this process's children. */
static void
open_by_names(const char *servers, const char *found)
{
	FrameTaken	opening = opening_of(servers);

	begin_session();
	around.parent = getpid();
	around.found = found;
	open_with(&opening);
}

/* All but slow.test are looked up in milliseconds. */
static void
take_names(void)
{
	struct pollfd polled = {names_descriptor(session->names), POLLIN, 0};

	for (int left = 200; left > 0; left--)
	{
		bool		is_over = true;

		for (int i = 0; i < names_list(session->names)->nservers; i++)
			is_over &= !names_is_awaited(session->names, i) ||
				strcmp(names_list(session->names)->servers[i].host, "slow.test") == 0;
		if (is_over)
			return;
		poll(&polled, 1, 100);
		session_take_names(session, boot_ms);
	}
	ok(false, "looked up in 20 seconds");
}

/* The servers are those of that list from now on. */
static void
adopt(const char *servers)
{
	static ServerList list;
	char		why[SERVERS_WHY_SIZE];
	Names	   *names;

	servers_parse(servers, &list, why);
	names = names_begin(&list);
	names_look_up(names);
	session_adopt(session, names);
	take_names();
}

static void
test_first_address(void)
{
	FrameTaken	frame;

	open_by_names("slow.test:1,quick.test:2,127.0.0.1:3", "192.0.2.9");
	is_str("127.0.0.1:3", library.hosts, "an address is enough to begin with");
	is_state(ZK_CLIENT_CONNECTING, ZK_LOSS_NONE, "while names are looked up");
	take_names();
	session_follow_names(session, boot_ms);
	is_str("127.0.0.1:3,192.0.2.9:2,192.0.2.9:2", library.hosts, "the library gets more addresses when names are looked up");
	is_int(3, session->link.servers.naddresses, "the number of addresses is known");
	is_int(0, count_frames(FRAME_STATUS) > 1, "the backend is not bothered");
	boot_ms += 99;
	session_follow_names(session, boot_ms);
	ok(!session->is_slow, "a tenth of a second is not long");
	session_report(session);
	(void) count_frames(FRAME_STATUS);
	boot_ms++;
	session_follow_names(session, boot_ms);
	session_report(session);
	frame = next_frame();
	is_str("Host \"slow.test\" is still being looked up", frame.blobs[1], "a name that takes long is told to the backend");
	session_set_error(session, "No luck");
	session_report(session);
	frame = next_frame();
	is_str("No luck; host \"slow.test\" is still being looked up", frame.blobs[1], "a name that takes long is told behind another error");
	adopt("127.0.0.1:3");
	ok(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD, "a name that is no longer in the list is not looked up");
	session_follow_names(session, boot_ms);
	session_set_error(session, "No luck");
	session_report(session);
	frame = next_frame();
	is_str("No luck", frame.blobs[1], "a name that is no longer in the list is not told any more");
	names_end(session->names);

	open_by_names("slow.test:1,gone.test:2", NULL);
	ok(session_is_opening(session), "an opening without an address waits");
	take_names();
	ok(session_is_opening(session), "an opening waits for the last name");
	ok(!session_may_live(session), "a session without an address has nothing to close");
	session->status.ticket.session_id = 4711;
	ok(session_may_live(session), "a session that was taken over is to be closed");
	names_end(session->names);

	open_by_names("gone.test:1,away.test:2", NULL);
	take_names();
	is_state(ZK_CLIENT_LOST, ZK_LOSS_RESOLVE, "an opening without any known name is lost");
	ok(strstr(session->last_error, "Host \"gone.test\" could not be resolved") != NULL &&
	   strstr(session->last_error, "; host \"away.test\" could not") != NULL, "the last error tells of both names: %s", session->last_error);
	names_end(session->names);
}

/* The kernel has no process, or the library no memory: later it may. */
static void
test_names_without_room(void)
{
	FrameTaken	opening = opening_of("quick.test:1,127.0.0.1:3");

	begin_session();
	around.cannot_fork = true;
	open_with(&opening);
	ok(!names_is_awaited(session->names, 0), "a name that cannot be looked up is not awaited");
	is_str("Host \"quick.test\" could not be looked up: Resource temporarily unavailable", session->last_error,
		   "the last error tells why the name could not be looked up");
	is_str("127.0.0.1:3", library.hosts, "the library gets the other addresses");
	around.cannot_fork = false;
	around.parent = getpid();
	around.found = "192.0.2.9";
	boot_ms += 1000;
	session_follow_names(session, boot_ms);
	take_names();
	library.has_no_list = true;
	session_follow_names(session, boot_ms);
	is_int(1, session->link.servers.naddresses, "a list that the library does not take changes nothing");
	library.has_no_list = false;
	session_follow_names(session, boot_ms);
	is_int(3, session->link.servers.naddresses, "the library gets the list again");
	is_str("", session->last_error, "what was in the way of the list of before is no error of the new one");
	names_end(session->names);
}

/* When names are looked up again, by the times since the connection broke. */
static void
test_looking_up_again(void)
{
	static const int expected[] = {0, 2000, 5000, 8000, 11000};
	int64_t		broken_at;

	open_by_names("quick.test:1,127.0.0.1:3", "192.0.2.9");
	take_names();
	connect_now();
	boot_ms += 100000;
	session->wake_at = INT64_MAX;
	session_follow_names(session, boot_ms);
	is_int(INT64_MAX, session->wake_at, "nothing is looked up while there is a connection");
	around.found = "192.0.2.10";
	disconnect_now(ZCONNECTIONLOSS);
	broken_at = boot_ms;
	for (int i = 0; i < NELEMS(expected); i++)
	{
		if (i > 0)
		{
			boot_ms = broken_at + expected[i] - 1;
			session->wake_at = INT64_MAX;
			session_follow_names(session, boot_ms);
			is_int(broken_at + expected[i], session->wake_at, "looked up %d ms after the break", expected[i]);
			ok(!names_is_awaited(session->names, 0), "the name is not looked up before that");
			boot_ms++;
		}
		session_follow_names(session, boot_ms);
		ok(names_is_awaited(session->names, 0), "the name is looked up then");
		(void) count_frames(FRAME_STATUS);
		session->is_slow = session->is_status_news = true;
		session_report(session);
		is_str(session->last_error, next_frame().blobs[1], "a name that is slow to look up is no error once a session has been connected");
		session->is_slow = false;
		if (i == 0)
			is_str("127.0.0.1:3,192.0.2.9:1,192.0.2.9:1", library.hosts, "the addresses found last go to the library at the break");
		take_names();
		session_follow_names(session, boot_ms);
	}
	ok(strstr(library.hosts, "192.0.2.10:1") != NULL && strstr(library.hosts, "192.0.2.9:1") == NULL,
	   "it is at another address now: %s", library.hosts);
	is_int(4, library.nset, "the library was told each list once");
	around.found = NULL;
	boot_ms += 3000;
	session_follow_names(session, boot_ms);
	take_names();
	session_follow_names(session, boot_ms);
	is_int(4, library.nset, "an unknown name stays where it was");
	connect_now();
	disconnect_now(ZCONNECTIONLOSS);
	session_follow_names(session, boot_ms);
	ok(names_is_awaited(session->names, 0), "a name is looked up at once when the next connection breaks");
	take_names();
	boot_ms += 400;
	library.watcher(session->zh, ZOO_SESSION_EVENT, ZOO_CONNECTING_STATE, NULL, session);
	session->wake_at = INT64_MAX;
	session_follow_names(session, boot_ms);
	is_int(boot_ms + 1600, session->wake_at, "a server that hangs up on an attempt changes nothing");
	names_end(session->names);

	suspend_now(ZCONNECTIONLOSS);
	boot_ms += 5000;
	session->wake_at = INT64_MAX;
	session_follow_names(session, boot_ms);
	is_int(INT64_MAX, session->wake_at, "addresses are never looked up");
	names_end(session->names);
}

/* The library must not try an address of before that is another ensemble's by now. */
static void
test_waiting_for_names(void)
{
	static const char *const servers[] = {"quick.test:1,127.0.0.1:3", "quick.test:1,slow.test:2"};

	for (int i = 0; i < NELEMS(servers); i++)
	{
		bool		is_slow = i == 1;
		struct pollfd polled = {-1, 0, 0};

		open_by_names(servers[i], "192.0.2.9");
		take_names();
		connect_now();
		boot_ms += 100000;
		around.found = "192.0.2.10";
		disconnect_now(ZCONNECTIONLOSS);
		library.state = 0;	/* neither connected nor connecting */
		library.ninterests = 0;
		session_follow_names(session, boot_ms);
		is_int(1000, connection_prepare(session, boot_ms, &polled), "%s: a break, and a second for names", servers[i]);
		is_int(-1, session->link.fd, "the library has no socket while names are looked up");
		take_names();
		session_follow_names(session, boot_ms);
		ok(strstr(library.hosts, "192.0.2.10:1") != NULL, "the addresses found in that second are used: %s", library.hosts);
		boot_ms += is_slow ? 999 : 0;
		(void) connection_prepare(session, boot_ms, &polled);
		is_int(is_slow ? 0 : 1, library.ninterests, "names that are found are not waited for");
		boot_ms++;
		(void) connection_prepare(session, boot_ms, &polled);
		ok(library.ninterests > 0, "the library goes on after that second");
		library.state = ZOO_CONNECTING_STATE;
		is_int(0, session_names_ms(session, boot_ms), "the library is not held up again");
		names_end(session->names);
	}
}

/* The library gets another list without a connection alone, and with R13. */
static void
test_other_servers(void)
{

	open_and_connect(THREE);
	strcpy(session->server, "127.0.0.1:2");
	adopt("127.0.0.1:4,127.0.0.1:5,127.0.0.1:6");
	session_follow_names(session, boot_ms);
	is_int(0, library.nset, "the library gets no list while there is a connection");
	session->link.pace.pause_until = boot_ms + 5000;
	disconnect_now(ZCONNECTIONLOSS);
	session_follow_names(session, boot_ms);
	is_int(2, library.nset, "the library gets the list when the connection breaks");
	is_str("255.255.255.255:1", library.stand_in, "the library gets the list by way of an address of nobody");
	is_str("127.0.0.1:5,127.0.0.1:6,127.0.0.1:4", library.hosts, "another one is the first by chance");
	is_int(0, session->link.pace.pause_until, "other servers end the pause");
	library.interest_ms = 250;
	connection_prepare(session, boot_ms, &(struct pollfd) {0});
	is_int(boot_ms, session->link.pace.pause_until, "other servers are tried without the pause that was due");
	connection_prepare(session, boot_ms, &(struct pollfd) {0});
	ok(session->link.pace.pause_until > boot_ms, "the pause after that is kept");
	adopt("127.0.0.1:6,127.0.0.1:5,127.0.0.1:4");
	session_follow_names(session, boot_ms);
	is_int(2, library.nset, "the same servers in another order are no news");
	adopt("127.0.0.1:4,127.0.0.1:5");
	session_follow_names(session, boot_ms);
	is_int(4, library.nset, "fewer servers are another list");
	is_int(3, session->link.servers.naddresses, "an odd number of attempts");
	names_end(session->names);

	/* an attempt is under way */
	open_by_names("quick.test:1,127.0.0.1:1", "127.0.0.1");
	library.server = "127.0.0.1:1";
	library.fd = session->link.fd = 77;
	session->link.attempt.until = boot_ms + 100000;
	take_names();
	is_int(boot_ms + 100000, session->link.attempt.until, "an attempt goes on when the same addresses are found");
	around.found = "192.0.2.9";
	names_look_up(session->names);
	take_names();
	is_int(boot_ms + 3000, session->link.attempt.until, "beside another one an attempt has its part");
	adopt("quick.test:1");
	names_look_up(session->names);
	take_names();
	is_int(boot_ms, session->link.attempt.until, "an attempt at a server that is not in the list ends");
	is_int(0, library.nset, "the list waits for the end of the attempt");
	names_end(session->names);
}

/* ---- connections ---- */

static void
test_connection(void)
{
	FrameTaken	frame;

	open_session(THREE);
	session->link.attempt.begun = (Moment) {999900, 77};
	session->link.pace.nrounds = 3;
	session->link.attempt.number = 4;
	session->link.end.contact_at = 5;
	strcpy(session->link.end.silent, "127.0.0.1:3");
	session_set_error(session, "an error");
	asleep_ms = 50;
	connect_now();
	is_state(ZK_CLIENT_CONNECTED, ZK_LOSS_NONE, "the session is connected");
	ok(session->link.is_up, "the connection is up");
	is_int(boot_ms, session->link.up_since, "the connection is up since now");
	is_int(3, session->link.pace.nrounds, "rounds go on until there is an answer");
	is_int(0, session->link.attempt.number, "attempts begin anew with a connection");
	is_int(0, session->link.end.contact_at, "the last contact is none of this connection");
	is_str("", session->link.end.silent, "no server counts as silent after a connection");
	is_int(50, session->link.suspended_ms, "the time the machine was suspended before is noted");
	is_int(boot_ms, session->link.contact.asked_leader_at, "the first heartbeat is not due at once");
	is_int(999900, session->link.contact.log.begun.boot_ms, "proofs are no older than the attempt");
	is_int(77, session->link.contact.log.begun.wall_ms, "proofs are no older than the attempt by the wall clock");
	is_int(1, session->link.pace.nunanswered, "the connection counts as unanswered");
	is_int(boot_ms, session->link.pace.unanswered_at, "the connection counts as unanswered since now");
	is_int(4711, session->status.ticket.session_id, "the session has the id that was granted");
	ok(memcmp(session->status.ticket.password, "0123456789abcde", 16) == 0, "the session has the password that was granted");
	is_int(TIMEOUT_MS, session->status.session_timeout_ms, "the session has the timeout that was granted");
	ok(session->status.was_connected, "the session counts as one that was connected");
	ok(session_may_live(session), "a connected session is to be closed");
	is_str("127.0.0.1:1", session->server, "the server of the connection is known");
	is_str("TLS of 77", session->tls, "the description of TLS is known");
	is_int(boot_ms + 4000, session->standstill.next_check_at, "the backend is looked at a third of the timeout later");
	is_int(0, session->status.suspended_at, "a connected session is not suspended");
	next_frame();
	frame = next_frame();
	ok(frame.frame.u.status.state == ZK_CLIENT_CONNECTED && frame.frame.u.status.ticket.session_id == 4711 &&
	   strcmp(frame.blobs[0], "127.0.0.1:1") == 0 && strcmp(frame.blobs[3], "TLS of 77") == 0,
	   "the backend is told of the connection");
	is_int(0, next_frame().frame.kind, "the backend is told of the connection once");
	session_set_error(session, "another one");
	ok(!session->is_status_news, "errors are no news while it is connected");

	/* the second one, of which nothing is answered yet */
	boot_ms += 1000;
	disconnect_now(-4);
	session_set_error(session, "another one");
	ok(session->is_status_news, "errors are news without a connection");
	boot_ms += 500;
	session->traffic.pending_since = 1;
	around.stale = "Old files";
	connect_now();
	is_int(2, session->link.pace.nunanswered, "both connections count as unanswered");
	is_int(1000000, session->link.pace.unanswered_at, "both connections count as unanswered since the first");
	is_int(0, session->link.contact.asked_leader_at, "the leader is to be asked at once over the second connection");
	is_int(boot_ms, session->traffic.pending_since, "a repeated request has the time of a new one");
	is_int(boot_ms, session->traffic.retry_at, "nodes that may come late are looked for over the second connection");
	is_int(1004000, session->standstill.next_check_at, "the backend is not left alone for longer");
	is_str("Old files", session->last_error, "the last error tells of outdated files");
	is_int(0, session->status.suspended_at, "the session is not suspended any more");
	ok(session->link.is_up, "the second connection is up");
}

static void
test_odd_servers(void)
{
	static const struct
	{
		int			granted_ms;
		int			state;
		bool		is_good;
		const char *what;
	}			cases[] = {
		{1, 3, true, "the shortest timeout"},
		{60 * 60 * 1000, 3, true, "the longest"},
		{60 * 60 * 1000 + 1, 3, false, "one that is longer"},
		{0, 3, false, "none"},
		{-1, 3, false, "a negative one"},
		{TIMEOUT_MS, 5, false, "a server that only reads"},
	};

	for (int i = 0; i < NELEMS(cases); i++)
	{
		open_session(THREE);
		library.granted_ms = cases[i].granted_ms;
		library.state = cases[i].state;
		session->link.fd = 77;
		library.watcher(session->zh, ZOO_SESSION_EVENT, cases[i].state, NULL, session);
		is_state(cases[i].is_good ? ZK_CLIENT_CONNECTED : ZK_CLIENT_LOST,
				 cases[i].is_good ? ZK_LOSS_NONE : ZK_LOSS_PROTOCOL, cases[i].what);
		ok(cases[i].is_good == (session->status.ticket.session_id != 0), "%s: is there a session?", cases[i].what);
		if (!cases[i].is_good)
			is_str("What answers at \"127.0.0.1:1\" is not ZooKeeper", session->last_error, "%s: why", cases[i].what);
	}

	open_session(THREE);
	library.watcher(session->zh, ZOO_CHANGED_EVENT, ZOO_CONNECTED_STATE, "/a", session);
	is_state(ZK_CLIENT_CONNECTING, ZK_LOSS_NONE, "the event of a node changes no state");
	library.watcher(session->zh, ZOO_SESSION_EVENT, ZOO_AUTH_FAILED_STATE, NULL, session);
	is_state(ZK_CLIENT_LOST, ZK_LOSS_AUTH, "credentials that are refused");
	library.watcher(session->zh, ZOO_SESSION_EVENT, ZOO_EXPIRED_SESSION_STATE, NULL, session);
	is_state(ZK_CLIENT_LOST, ZK_LOSS_AUTH, "the first loss stays");

	open_and_connect(THREE);
	library.watcher(session->zh, ZOO_SESSION_EVENT, ZOO_EXPIRED_SESSION_STATE, NULL, session);
	is_state(ZK_CLIENT_LOST, ZK_LOSS_EXPIRED, "a session that has expired");
	ok(strncmp(session->last_error, "Server \"", 8) == 0 && strstr(session->last_error, "\" has said: ") != NULL,
	   "the last error names the server that says so: %s", session->last_error);
	is_int(boot_ms, session->status.suspended_at, "a session that has expired is suspended since the same moment");
	boot_ms += 100;
	connect_now();
	is_state(ZK_CLIENT_LOST, ZK_LOSS_EXPIRED, "no connection brings a lost session back");
	ok(session->link.is_up, "a lost session is closed over a new connection");
	is_int(boot_ms, session->link.up_since, "the new connection is up since now");
	is_int(boot_ms - 100, session->status.lost_at, "the time of the loss stays");
	disconnect_now(-4);
	ok(!session->link.is_up, "a lost session is not up without that connection");
}

/* ---- suspended ---- */

/* How long a session may live whose connection is gone. */
static void
test_deadlines(void)
{
	static const struct
	{
		int			timeout_ms;
		int			silent_ms;	/* -1: not known */
		int			code;		/* the library's word for the end */
		bool		is_wanted;	/* the interrupt */
		int			suspended;	/* when, to the end of the connection */
		int			early;
		int			lost;
		const char *what;
	}			cases[] = {
		{12000, 0, -4, false, 0, 11760, 12000, "a connection that was reset"},
		{12000, 700, -4, false, 0, 11060, 12000, "in contact before"},
		{12000, 700, -4, true, 0, 11060, 11060, "if the loss interrupts"},
		{12000, 8000, -7, false, -8000, 3760, 12000, "a silent one"},
		{12000, 8000, -7, true, -8000, 3760, 3760, "a silent one, if the loss interrupts"},
		{12000, -1, -7, false, -8000, 3760, 12000, "a silent one, and nothing is known"},
		{12000, -1, -4, false, 0, 7760, 12000, "another one, and nothing is known"},
		{3000, 0, -4, true, 0, 2800, 2800, "200 ms are left at least"},
		{10000, 0, -4, true, 0, 9800, 9800, "which is a fiftieth"},
		{40000, 0, -4, true, 0, 39200, 39200, "of a longer timeout it is more"},
	};

	for (int i = 0; i < NELEMS(cases); i++)
	{
		const char *what = cases[i].what;

		open_session(THREE);
		library.granted_ms = cases[i].timeout_ms;
		connect_now();
		boot_ms += 20000;
		around.silent_ms = cases[i].silent_ms;
		around.is_no_socket = cases[i].silent_ms < 0;
		if (cases[i].is_wanted)
			interrupt_want(session->page);
		disconnect_now(cases[i].code);
		is_state(ZK_CLIENT_SUSPENDED, ZK_LOSS_NONE, what);
		is_int(cases[i].suspended, session->status.suspended_at - boot_ms, "%s: suspended", what);
		is_int(cases[i].early, session->early_deadline - boot_ms, "%s: the early deadline", what);
		is_int(cases[i].lost, session->lost_deadline - boot_ms, "%s: the deadline", what);
		ok(!session->link.is_up, "%s: it is not up", what);
		is_int(-1, session->link.fd, "%s: nor is there a socket", what);

		/* up to the deadline, and then */
		session->wake_at = INT64_MAX;
		session->standstill.next_check_at = INT64_MAX;
		tick_session(boot_ms + cases[i].lost - 1);
		is_state(ZK_CLIENT_SUSPENDED, ZK_LOSS_NONE, what);
		is_int(cases[i].lost, session->wake_at - boot_ms, "%s: the loop wakes up for it", what);
		if (!cases[i].is_wanted)
		{
			interrupt_want(session->page);
			session->wake_at = INT64_MAX;
			tick_session(boot_ms);
			is_int(cases[i].early, session->wake_at - boot_ms, "%s: earlier if the loss interrupts since", what);
			interrupt_refuse(session->page);
		}
		tick_session(boot_ms + cases[i].lost);
		is_state(ZK_CLIENT_LOST, ZK_LOSS_SILENCE, what);
		is_int(cases[i].suspended, session->status.suspended_at - boot_ms, "%s: suspended as before", what);
		ok(session_is_ending(session), "%s: it ends", what);
	}
}

/* The early deadline is no deadline for who is not interrupted any more. */
static void
test_late_connections(void)
{
	static const struct
	{
		int			at;			/* after the end of the connection */
		bool		is_wanted;
		bool		is_lost;
	}			cases[] = {
		{11759, true, false},
		{11760, true, true},
		{11760, false, false},
		{11999, false, false},
		{12000, false, true},
	};
	uint64_t	before;

	for (int i = 0; i < NELEMS(cases); i++)
	{
		suspend_now(-4);
		if (cases[i].is_wanted)
			interrupt_want(session->page);
		boot_ms += cases[i].at;
		connect_now();
		is_state(cases[i].is_lost ? ZK_CLIENT_LOST : ZK_CLIENT_CONNECTED,
				 cases[i].is_lost ? ZK_LOSS_SILENCE : ZK_LOSS_NONE,
				 "is the session lost when it is connected after that time?");
	}

	/* a loss is told, and interrupts, in that order */
	suspend_now(-4);
	interrupt_want(session->page);
	around.parent = 999999999;
	boot_ms += 11760;
	while (next_frame().frame.kind != 0)
		;
	before = atomic_load(&session->page->nflushed);
	tick_session(boot_ms);
	is_int(1, around.nkilled, "the backend is interrupted");
	is_int(ZK_LOSS_SILENCE, around.told_loss, "the page has the reason before the interrupt");
	is_int(before + 2, around.told_frames, "the frame is sent, and the loss counted as news, before the interrupt");
	is_int(INTERRUPT_SENT, atomic_load(&session->page->loss_interrupt), "the page says that the interrupt was sent");
	is_int(ZK_LOSS_SILENCE, atomic_load(&session->page->lost), "the page has the reason of the loss");
	is_int(ZK_CLIENT_LOST, next_frame().frame.u.status.state, "the frame tells of the loss");

	suspend_now(-4);
	interrupt_want(session->page);
	around.parent = 1;
	session_end(session, ZK_LOSS_REFUSED);
	is_int(0, around.nkilled, "no other process than the backend is interrupted");

	open_session(THREE);
	log_end(-4, "x");
	library.watcher(session->zh, ZOO_SESSION_EVENT, ZOO_CONNECTING_STATE, NULL, session);
	is_state(ZK_CLIENT_CONNECTING, ZK_LOSS_NONE, "a session that was never connected is not suspended");
	tick_session(boot_ms + 1000000);
	is_state(ZK_CLIENT_CONNECTING, ZK_LOSS_NONE, "a session that was never connected is not lost for silence");

	/* another attempt fails: the deadlines are those of the connection */
	suspend_now(-4);
	boot_ms += 3000;
	disconnect_now(-7);
	is_int(1012000, session->lost_deadline, "an attempt that fails is no end of a connection");
	is_int(1000000, session->status.suspended_at, "the time of the suspension stays");
}

/* A connection that the library drops without a word. */
static void
test_dropped(void)
{
	open_and_connect(THREE);
	session_check_connection(session);
	is_state(ZK_CLIENT_CONNECTED, ZK_LOSS_NONE, "a connection that is there");
	library.state = ZOO_READONLY_STATE;
	session_check_connection(session);
	is_state(ZK_CLIENT_CONNECTED, ZK_LOSS_NONE, "a connection to a read-only server is there");
	library.state = ZOO_CONNECTING_STATE;
	library.is_over = true;
	session_check_connection(session);
	is_state(ZK_CLIENT_CONNECTED, ZK_LOSS_NONE, "a session that is over is left to its event");
	library.is_over = false;
	session_check_connection(session);
	is_state(ZK_CLIENT_SUSPENDED, ZK_LOSS_NONE, "a connection that is gone suspends the session");
	boot_ms += 1000;
	session_check_connection(session);
	is_int(1012000, session->lost_deadline, "a connection that is gone is noticed once");
}

/* When was the last contact? */
static void
test_contact(void)
{
	static const struct
	{
		int			silent_ms;
		int			asleep_before;
		int			asleep_since;
		int			tls_ms;		/* TLS has received something so long ago; -1:
								 * there is none */
		int			expected;	/* so long ago */
		const char *what;
	}			cases[] = {
		{300, 0, 0, -1, 300, "as the kernel says"},
		{300, 40, 0, -1, 300, "the machine was suspended before the connection"},
		{300, 40, 500, -1, 800, "and since"},
		{300, 0, 0, 200, 300, "TLS has heard later"},
		{300, 0, 0, 400, 400, "TLS has heard earlier"},
	};

	for (int i = 0; i < NELEMS(cases); i++)
	{
		open_session(THREE);
		asleep_ms = cases[i].asleep_before;
		connect_now();
		boot_ms += 5000;
		asleep_ms += cases[i].asleep_since;
		around.silent_ms = cases[i].silent_ms;
		if (cases[i].tls_ms >= 0)
			around.received_at = boot_ms - cases[i].tls_ms;
		log_end(-4, "x");
		is_int(cases[i].expected, boot_ms - session->link.end.contact_at, "the last contact: %s", cases[i].what);
	}

	open_session(THREE);
	session->link.fd = 77;
	log_end(-4, "x");
	is_int(0, session->link.end.contact_at, "an attempt that failed has no last contact");
	open_and_connect(THREE);
	session->link.fd = -1;
	log_end(-4, "x");
	is_int(0, session->link.end.contact_at, "a connection without a socket has no last contact");
}

/* ---- attempts, and servers that are silent ---- */

/* How long a server may take to answer an attempt. */
static void
test_attempts(void)
{
	static const struct
	{
		const char *servers;
		int			nattempts;
		int			left_ms;	/* -1: there is no session yet */
		const char *silent;
		int64_t		expected;
		const char *what;
	}			cases[] = {
		{THREE, 0, -1, "", 3000, "the first attempt"},
		{THREE, 2, -1, "", 3000, "the last of the first round"},
		{THREE, 3, -1, "", 6000, "the first of the second one"},
		{THREE, 6, -1, "", 9000, "of the third one"},
		{"127.0.0.1:1", 5, -1, "", INT32_MAX, "there is no other server"},
		{"127.0.0.1:1", 5, -1, "127.0.0.1:1", INT32_MAX, "however silent it was"},
		{THREE, 0, -1, "127.0.0.1:1", 750, "a server that was silent"},
		{THREE, 3, -1, "127.0.0.1:1", 1500, "in the second round"},
		{THREE, 0, -1, "127.0.0.1:2", 3000, "another one was silent"},
		{THREE, 0, 9000, "", 1500, "suspended: all have their turn twice"},
		{THREE, 9, 9000, "", 1500, "in any round"},
		{THREE, 0, 9000, "127.0.0.1:1", 375, "save for the silent one"},
		{THREE, 0, 2400, "", 400, "a fifth of the timeout is left"},
		{THREE, 0, 2399, "", 400, "less is left"},
		{THREE, 0, -100, "", 400, "nothing is left"},
		{"127.0.0.1:1", 0, 9000, "", 4500, "one server, suspended"},
		{"127.0.0.1:1", 0, 9000, "127.0.0.1:1", 4500, "which was silent"},
	};

	for (int i = 0; i < NELEMS(cases); i++)
	{
		Link	   *link;

		open_session(cases[i].servers);
		link = &session->link;
		if (cases[i].left_ms != -1)
		{
			connect_now();
			disconnect_now(-4);
			session->early_deadline = boot_ms + cases[i].left_ms;
			session->lost_deadline = boot_ms + 77777;
		}
		link->attempt.number = cases[i].nattempts;
		link->attempt.cut = LINK_CUT_FOR_SILENCE;
		strcpy(link->end.silent, cases[i].silent);
		session_bound_attempt(session, boot_ms);
		is_int(cases[i].expected, link->attempt.until - boot_ms, "%s", cases[i].what);
		is_int(cases[i].nattempts + 1, link->attempt.number, "%s: it counts", cases[i].what);
		ok(link->attempt.cut == LINK_NOT_CUT, "%s: it is not given up yet", cases[i].what);
		ok(link->attempt.is_hurried == (strcmp(cases[i].silent, "127.0.0.1:1") == 0 && link->servers.naddresses > 1),
		   "%s: is it hurried?", cases[i].what);
	}
}

/* Which server was silent, and what is said of that. */
static void
test_silence(void)
{
	Link	   *link;

	open_session(THREE);
	link = &session->link;
	link->attempt.begun.boot_ms = boot_ms;
	session_bound_attempt(session, boot_ms);
	log_end(-7, "Connection timed out");
	is_str("127.0.0.1:1", link->end.silent, "a server that did not answer");
	ok(link->end.was_silent, "the attempt ended for the server's silence");
	is_str("Server \"127.0.0.1:1\" cannot be reached: Connection timed out", session->last_error, "the last error says that the server cannot be reached in time");

	library.server = "127.0.0.1:2";
	session_bound_attempt(session, boot_ms);
	log_end(-4, "Connection refused");
	ok(!link->end.was_silent, "a server that refuses was not silent");
	is_str("127.0.0.1:1", link->end.silent, "the other one stays the silent one");
	is_str("Server \"127.0.0.1:2\" cannot be reached: Connection refused", session->last_error, "the last error says that the server refuses");

	link->attempt.begun.boot_ms = boot_ms;
	session_bound_attempt(session, boot_ms);
	link->attempt.cut = LINK_CUT_FOR_SILENCE;
	log_end(-4, "Broken pipe");
	is_str("127.0.0.1:2", link->end.silent, "an attempt that was given up");
	ok(!link->end.was_silent, "an attempt that was given up is no silence that the library waited for");
	is_str("Server \"127.0.0.1:2\" did not answer within 3000 ms", session->last_error, "the last error says how long the server did not answer");

	session_bound_attempt(session, boot_ms);
	link->attempt.cut = LINK_CUT_FOR_SILENCE;
	session_set_error(session, "before");
	log_end(-4, "Broken pipe");
	is_str("before", session->last_error, "an attempt that had no time changes no error");
	is_str("127.0.0.1:2", link->end.silent, "the silent server stays silent after an attempt that had no time");

	session_bound_attempt(session, boot_ms);
	log_end(-4, "Connection refused");
	is_str("", link->end.silent, "a server that answers is silent no more");

	for (int i = 0; i < 3; i++)
	{
		static const char *words[] = {"Host is down", "Broken pipe", "Connection reset by peer"};

		session_bound_attempt(session, boot_ms);
		log_end(-4, words[i]);
		is_str("Server \"127.0.0.1:2\" closed the connection", session->last_error, "%s", words[i]);
	}
	around.error = "An alert";
	log_end(-4, "Broken pipe");
	is_str("An alert", session->last_error, "the last error has what TLS knows");
	library.log("2026:7(0x7f):ZOO_ERROR@function@99: some words\r\nmore");
	is_str("some words", session->last_error, "any other line: its words");
	is_int(-1, link->fd, "a line of the library's log ends a connection");
	session->link.fd = 77;
	library.log("no head");
	is_str("no head", session->last_error, "a line without a head");
	is_int(77, link->fd, "a line without a head is no end of a connection");

	/* silence that is over: what is known of the connection before counts no more */
	open_and_connect(THREE);
	around.silent_ms = 8000;
	disconnect_now(-7);
	ok(session->link.end.was_silent, "a connection that was silent");
	is_int(boot_ms - 8000, session->link.end.contact_at, "the last contact of the silent connection is known");
	connect_now();
	boot_ms += 9000;
	around.silent_ms = 100;
	disconnect_now(-4);
	is_int(boot_ms, session->status.suspended_at, "the next connection is suspended since now");
	is_int(boot_ms + 11660, session->early_deadline, "the next connection was in contact");
}

/* ---- answers that do not come ---- */

static void
test_unanswered(void)
{
	static const struct
	{
		int			nunanswered;
		int			unanswered_ms;
		int			npending;
		int			pending_ms;
		bool		is_up;
		bool		is_lost;
		const char *what;
	}			cases[] = {
		{4, 12000, 0, 0, true, true, "four connections, for the session timeout"},
		{4, 11999, 0, 0, true, false, "not as long"},
		{3, 12000, 0, 0, true, false, "three"},
		{4, 12000, 0, 0, false, false, "and the last is gone"},
		{1, 0, 1, 12000, true, true, "a request, for the session timeout"},
		{1, 0, 1, 11999, true, false, "a request, not as long"},
		{1, 0, 0, 12000, true, false, "no request"},
		{1, 0, 1, 12000, false, false, "a request without a connection"},
	};

	for (int i = 0; i < NELEMS(cases); i++)
	{
		open_and_connect(THREE);
		session->link.is_up = cases[i].is_up;
		session->link.pace.nunanswered = cases[i].nunanswered;
		session->link.pace.unanswered_at = boot_ms - cases[i].unanswered_ms;
		session->traffic.npending = cases[i].npending;
		session->traffic.pending_since = boot_ms - cases[i].pending_ms;
		session->wake_at = INT64_MAX;
		session->wait.path = strdup("/a/b");
		tick_session(boot_ms);
		is_state(cases[i].is_lost ? ZK_CLIENT_LOST : ZK_CLIENT_CONNECTED,
				 cases[i].is_lost ? ZK_LOSS_UNANSWERED : ZK_LOSS_NONE, cases[i].what);
		is_int(cases[i].is_lost, count_calls("unwatch", "/a/b"), "%s: does the watch go?", cases[i].what);
		if (!cases[i].is_lost)
			is_int(cases[i].npending > 0 && cases[i].is_up ? 1 : 4000, session->wake_at - boot_ms,
				   "%s: when the loop wakes up", cases[i].what);
	}

	/* the connection that is one too many is noticed as it comes */
	open_and_connect(THREE);
	session->link.pace.nunanswered = 3;
	session->link.pace.unanswered_at = boot_ms - TIMEOUT_MS + 1;
	connect_now();
	is_state(ZK_CLIENT_CONNECTED, ZK_LOSS_NONE, "a fourth connection, a millisecond early");
	session->link.pace.unanswered_at--;
	connect_now();
	is_state(ZK_CLIENT_LOST, ZK_LOSS_UNANSWERED, "a connection more than four, for the session timeout");

	/* what is watched is not asked for again after a loss */
	open_and_connect(THREE);
	session->wait.path = strdup("/a/b");
	session->wait.watch = WATCH_DATA;
	session_end(session, ZK_LOSS_UNANSWERED);
	follow_tick(session);
	ok(session->wait.path == NULL, "the wait of a session that ends is over");
	is_int(1, count_calls("unwatch", "/a/b"), "the watch of a session that ends is removed");

	open_and_connect(THREE);
	session->orphaned_at = boot_ms;
	session->traffic.npending = 1;
	session->traffic.pending_since = boot_ms - 99999;
	tick_session(boot_ms);
	is_state(ZK_CLIENT_CONNECTED, ZK_LOSS_NONE, "a session without a backend is not lost for want of answers");
	ok(session_is_ending(session), "a session without a backend is ending");
}

/* ---- a backend that stands still ---- */

static bool
is_stopped_now(pid_t child)
{
	int			status;

	return waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status);
}

static void
stop(pid_t child)
{
	kill(child, SIGSTOP);
	if (!is_stopped_now(child))
		note("%d does not stop", (int) child);
}

/* So that it has been switched to in between. */
static void
wake_and_stop(pid_t child)
{
	int			status;

	kill(child, SIGCONT);
	waitpid(child, &status, WCONTINUED);
	stop(child);
}

static pid_t
start_child(void)
{
	pid_t		child = fork();

	while (child == 0)
		pause();
	return child;
}

static void
test_standstill(void)
{
	pid_t		child = start_child();

	open_and_connect(THREE);
	session->open.backend_pid = child;
	stop(child);
	session->wake_at = INT64_MAX;
	tick_session(boot_ms + 4000);
	is_int(0, session->standstill.since, "a backend without locks is not looked at");
	is_int(INT64_MAX, session->wake_at, "the loop does not wake up to look at a backend without locks");
	kill(child, SIGCONT);

	open_and_connect(THREE);
	atomic_store(&session->page->is_in_use, 1);
	session->open.backend_pid = child;
	boot_ms += 3999;
	stop(child);
	tick_session(boot_ms);
	is_int(0, session->standstill.since, "a backend is not looked at early");
	is_int(1, session->wake_at - boot_ms, "the loop wakes up to look at the backend");
	boot_ms += 1;
	tick_session(boot_ms);
	is_int(1004000, session->standstill.since, "a stopped backend stands still");
	is_int(1008000, session->standstill.next_check_at, "the next look is a third of the timeout later");
	tick_session(1008000);
	is_int(1004000, session->standstill.since, "a stopped backend still stands still at the next look");
	is_state(ZK_CLIENT_CONNECTED, ZK_LOSS_NONE, "a session is not lost for a third of its timeout");
	session->standstill.next_check_at = 0;
	tick_session(1004000 + 8000 - 600 - 1);
	is_state(ZK_CLIENT_CONNECTED, ZK_LOSS_NONE, "a millisecond is missing");
	session->standstill.next_check_at = 0;
	boot_ms = 1004000 + 8000 - 600;
	tick_session(boot_ms);
	is_state(ZK_CLIENT_LOST, ZK_LOSS_STANDSTILL, "seen so for two thirds of the timeout");

	open_and_connect(THREE);
	atomic_store(&session->page->is_in_use, 1);
	session->open.backend_pid = child;
	tick_session(1004000);
	wake_and_stop(child);
	tick_session(1008000);
	is_int(1008000, session->standstill.since, "a backend that has run in between stands still anew");
	tick_session(1012000);
	is_state(ZK_CLIENT_CONNECTED, ZK_LOSS_NONE, "the time to stand still counts from the later stop");
	kill(child, SIGCONT);
	for (int status; waitpid(child, &status, WCONTINUED) != child;)
		;
	tick_session(1016000);
	is_int(0, session->standstill.since, "a backend that runs does not stand still");
	is_state(ZK_CLIENT_CONNECTED, ZK_LOSS_NONE, "a backend that runs keeps its session");

	open_and_connect(THREE);
	atomic_store(&session->page->is_in_use, 1);
	session->open.backend_pid = child;
	disconnect_now(-4);
	stop(child);
	tick_session(1004000);
	is_int(1004000, session->standstill.since, "a backend is looked at without a connection, too");
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);

	open_and_connect(THREE);
	atomic_store(&session->page->is_in_use, 1);
	session->open.backend_pid = 999999999;
	tick_session(1004000);
	is_int(0, session->standstill.since, "a process that is not there does not stand still");
	open_session(THREE);
	tick_session(1004000);
	is_int(INT64_MAX, session->wake_at, "no backend is looked at before the first connection");
}

/* ---- program_main.c: the end ---- */

/* When a session that is ending is closed, with what is left to be done. */
static void
test_end(void)
{
	static const struct
	{
		int			lost_at;	/* 0: it is not lost, but orphaned */
		int			orphaned_at;
		int			up_since;	/* 0: it is not up */
		int			npending;
		int			expected;	/* the deadline; -1: never */
		const char *what;
	}			cases[] = {
		{500, 0, 100, 1, 900, "lost, requests are outstanding"},
		{500, 0, 700, 1, 1100, "lost, connected after that"},
		{500, 0, 0, 0, -1, "lost, without a connection"},
		{0, 500, 100, 1, 900, "orphaned, requests are outstanding"},
		{0, 500, 700, 1, 1100, "orphaned, connected after that"},
		{0, 500, 0, 0, 24500, "orphaned, without a connection"},
		{800, 500, 100, 1, 1200, "orphaned, and lost after that"},
		{500, 800, 100, 1, 900, "lost, and orphaned after that"},
		{500, 800, 0, 1, 24800, "both, without a connection"},
	};

	for (int i = 0; i < NELEMS(cases); i++)
	{
		const char *what = cases[i].what;
		int64_t		start;

		open_and_connect(THREE);
		start = boot_ms;
		session->link.is_up = cases[i].up_since != 0;
		session->link.up_since = start + cases[i].up_since;
		if (cases[i].lost_at != 0)
		{
			boot_ms = start + cases[i].lost_at;
			session_end(session, ZK_LOSS_EXPIRED);
		}
		if (cases[i].orphaned_at != 0)
			session->orphaned_at = start + cases[i].orphaned_at;
		session->traffic.npending = cases[i].npending;
		is_int(cases[i].expected < 0 ? INT64_MAX : start + cases[i].expected, end_deadline(session), "%s", what);
		if (cases[i].expected >= 0)
		{
			ok(!wind_up(session, start + cases[i].expected - 1), "%s: it is waited for", what);
			ok(wind_up(session, start + cases[i].expected), "%s: and then it is not", what);
			session->wake_at = INT64_MAX;
			is_int(cases[i].expected - 10, milliseconds_until_next(session, start + 10), "%s: the loop wakes up", what);
		}
		else
			ok(!wind_up(session, INT64_MAX - 1), "%s: it is waited for", what);
		session->traffic.npending = 0;
		ok(wind_up(session, start + 10) == (cases[i].up_since != 0), "%s: nothing is outstanding", what);
	}

	open_and_connect(THREE);
	ok(!wind_up(session, INT64_MAX - 1), "a session that goes on is not closed");
	is_int(-1, milliseconds_until_next(session, boot_ms), "a session that goes on waits for nothing");
	session->wake_at = boot_ms + 5;
	is_int(5, milliseconds_until_next(session, boot_ms), "a session that goes on waits until something is due");
	is_int(0, milliseconds_until_next(session, boot_ms + 6), "or was due before");

	open_session(THREE);
	session->open.session_timeout_ms = 7000;
	session->orphaned_at = boot_ms;
	is_int(boot_ms + 14000, end_deadline(session), "the end of an opening waits for the timeout that was asked for");
	ok(wind_up(session, boot_ms), "an opening is wound up at once");
	session->status.session_timeout_ms = 60 * 60 * 1000;
	is_int(boot_ms + 5 * 60 * 1000, end_deadline(session), "the end of a session waits for five minutes at most");
}

/*
 * A session that cannot be closed is left alone for so long that the ensemble ends
 * it: each request to connect that reaches a server keeps it alive.
 */
static void
test_rest(void)
{
	struct pollfd polled = {.fd = -1};
	int			pair[2];
	int64_t		tried;

	/* no server is reached: nothing is touched, and the attempts go on */
	open_and_connect(THREE);
	disconnect_now(ZCONNECTIONLOSS);
	session_lose(session, ZK_LOSS_SILENCE);
	boot_ms += 100 * TIMEOUT_MS;
	library.ninterests = 0;
	(void) connection_prepare(session, boot_ms, &polled);
	is_int(1, library.ninterests, "attempts that reach no server go on");

	/* a server is reached */
	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	tried = boot_ms += 1000;
	library.fd = pair[0];
	library.interest_ms = 9000;
	library.state = ZOO_ASSOCIATING_STATE;
	session->link.pace.pause_until = 0;
	is_int(3000, connection_prepare(session, boot_ms, &polled), "an attempt to close the session has its time");
	boot_ms = tried + TIMEOUT_MS / 2 - 1;
	session_bound_attempt(session, boot_ms);
	is_int(1, connection_prepare(session, boot_ms, &polled), "no attempt lasts longer than half a session timeout from then on");
	ok(session->link.attempt.cut == LINK_NOT_CUT, "the last attempt is not given up before");
	boot_ms++;
	(void) connection_prepare(session, boot_ms, &polled);
	ok(session->link.attempt.cut == LINK_CUT_FOR_SILENCE, "the last attempt is given up");

	/* its socket is closed */
	log_end(ZOPERATIONTIMEOUT, "Connection timed out");
	library.state = 0;
	library.fd = -1;
	library.ninterests = 0;
	is_int(2 * TIMEOUT_MS, connection_prepare(session, boot_ms, &polled), "there is no connection for two session timeouts");
	session->link.pace.pause_until = 0; /* as behind another list of servers */
	boot_ms += 2 * TIMEOUT_MS - 1;
	is_int(1, connection_prepare(session, boot_ms, &polled), "nothing ends the rest before");
	is_int(0, library.ninterests, "the library is left alone during the rest");
	is_int(INT64_MAX, end_deadline(session), "the backend is there, and so is the program");
	boot_ms++;
	(void) connection_prepare(session, boot_ms, &polled);
	is_int(1, library.ninterests, "attempts go on after the rest");
	library.state = ZOO_ASSOCIATING_STATE;
	session->link.pace.pause_until = 0;
	tried = boot_ms += 1000;
	(void) connection_prepare(session, boot_ms, &polled);
	is_int(tried + TIMEOUT_MS / 2, session->link.pace.rest_at, "the next rest is measured anew");

	/* one that is not over has none; nor has one that can be closed now */
	open_and_connect(THREE);
	disconnect_now(ZCONNECTIONLOSS);
	library.state = ZOO_ASSOCIATING_STATE;
	(void) connection_prepare(session, boot_ms, &polled);
	is_int(0, session->link.pace.rest_at, "a session that is not over has no rest");
	session->orphaned_at = boot_ms;
	(void) connection_prepare(session, boot_ms, &polled);
	is_int(boot_ms + TIMEOUT_MS / 2, session->link.pace.rest_at, "a session without a backend has one, too");
	connect_now();
	boot_ms += TIMEOUT_MS;
	library.ninterests = 0;
	(void) connection_prepare(session, boot_ms, &polled);
	is_int(1, library.ninterests, "a connection is used to close the session");
	close(pair[0]);
	close(pair[1]);
}

/* A backend that does not read is given some time to. */
static void
test_hearing(void)
{
	open_and_connect(THREE);
	library.watcher(session->zh, ZOO_SESSION_EVENT, ZOO_EXPIRED_SESSION_STATE, NULL, session);
	session->is_out_urgent = true;
	ok(is_heard_yet(session, boot_ms + 399), "the backend has not read yet why");
	session->wake_at = INT64_MAX;
	is_int(400, milliseconds_until_next(session, boot_ms), "a backend has 400 ms to read why");
	ok(!is_heard_yet(session, boot_ms + 400), "a backend has no longer than 400 ms to read why");
	session->orphaned_at = boot_ms;
	ok(!is_heard_yet(session, boot_ms), "a backend that is gone is not waited for");
	session->orphaned_at = 0;
	session->is_out_urgent = false;
	ok(!is_heard_yet(session, boot_ms), "a backend that has read all is not waited for");

	/* its channel is full */
	open_and_connect(THREE);
	while (send(PROTOCOL_CHANNEL_FD, &session, sizeof(session), MSG_DONTWAIT) > 0)
		;
	disconnect_now(-4);
	boot_ms += 12000;
	tick_session(boot_ms);
	is_state(ZK_CLIENT_LOST, ZK_LOSS_SILENCE, "a backend that does not read");
	library.is_over = true;
	ok(!wind_up(session, boot_ms + 399), "a backend that does not read is waited for, though there is nothing to close");
	ok(wind_up(session, boot_ms + 400), "a backend that does not read is waited for 400 ms since the loss");
}

/* ---- program_main.c: between attempts ---- */

static void
test_pauses(void)
{
	static const struct
	{
		int			nrounds;
		int			library_ms;
		int64_t		left_ms;	/* -1: there is no session yet */
		int			expected;
		const char *what;
	}			cases[] = {
		{0, 200, -1, 200, "the first round"},
		{1, 200, -1, 400, "the second one"},
		{2, 200, -1, 800, "the third one"},
		{3, 200, -1, 800, "and not longer"},
		{40, 200, -1, 800, "however many there are"},
		{2, 200, 3200, 800, "a fourth of what is left"},
		{2, 200, 2400, 600, "less is left"},
		{2, 200, 700, 200, "not more often than the library would"},
		{2, 200, -50, 200, "nothing is left"},
	};

	for (int i = 0; i < NELEMS(cases); i++)
	{
		open_session(THREE);
		if (cases[i].left_ms != -1)
		{
			connect_now();
			disconnect_now(-4);
			session->early_deadline = boot_ms + cases[i].left_ms;
		}
		session->link.pace.nrounds = cases[i].nrounds;
		is_int(cases[i].expected, pause_between_rounds(session, boot_ms, cases[i].library_ms), "%s", cases[i].what);
		is_int(cases[i].nrounds + 1, session->link.pace.nrounds, "%s: it counts", cases[i].what);
	}
}

/* Connections that bring nothing: a pause of our own once each server had its turn. */
static void
test_pauses_of_our_own(void)
{
	struct pollfd polled = {-1, 0, 0};
	int			ninterests;

	open_and_connect(THREE);
	session->link.servers.naddresses = 3;
	library.fd = -1;
	library.interest_ms = 0;
	for (int round = 0; round < 2; round++)
		for (int i = 1; i <= 3; i++)
		{
			if (round > 0 || i > 1)
				connect_now();
			ok(!is_pause_due(session), "connection %d of round %d is there", i, round);
			disconnect_now(-4);
			library.state = ZOO_CONNECTING_STATE;
			ok(!is_pause_due(session), "no pause is due while the library connects");
			library.state = ZOO_ASSOCIATING_STATE;
			ok(!is_pause_due(session), "no pause is due while the library shakes hands");
			library.state = 0;
			ok(is_pause_due(session) == (i == 3), "connection %d of round %d has brought nothing", i, round);
			if (i == 3)
			{
				ninterests = library.ninterests;
				is_int(round == 0 ? 200 : 400, connection_prepare(session, boot_ms, &polled), "the pause of round %d", round);
				is_int(ninterests, library.ninterests, "the library is left alone for the pause");
				ok(!is_pause_due(session), "no second pause is due");
				boot_ms = session->link.pace.pause_until;
				is_int(0, connection_prepare(session, boot_ms, &polled), "the library has no pause of its own behind ours");
				is_int(ninterests + 1, library.ninterests, "the library goes on after the pause");
			}
		}

	/* after an answer there is none */
	connect_now();
	session->link.pace.nunanswered = 0;
	disconnect_now(-4);
	library.state = 0;
	ok(!is_pause_due(session), "the first attempt after a connection with answers is made at once");
}

/* When the library is asked, and how long an attempt may last. */
static void
test_library_times(void)
{
	struct pollfd polled = {.fd = -1};
	int			pair[2];
	struct stat socket;
	char		byte;

	open_session(THREE);
	library.interest_ms = 200;
	is_int(200, connection_prepare(session, boot_ms, &polled), "a pause once all servers were tried");
	is_int(boot_ms + 200, session->link.pace.pause_until, "the pause lasts as long as the library says");
	is_int(150, connection_prepare(session, boot_ms + 50, &polled), "the library is left alone");
	is_int(1, library.ninterests, "the library is not asked during the pause");
	is_int(400, connection_prepare(session, boot_ms + 200, &polled), "the next pause is longer");
	is_int(-1, polled.fd, "there is no socket to poll during the pause");

	open_session(THREE);
	library.interest_rc = ZCONNECTIONLOSS;
	library.interest_ms = 3;
	is_int(10, connection_prepare(session, boot_ms, &polled), "an attempt that failed at once");
	is_int(boot_ms + 10, session->link.pace.pause_until, "an attempt that failed at once is followed by a short pause");
	is_int(0, session->link.pace.nrounds, "the short pause is not one between rounds");

	/* an attempt, in time and too late */
	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	open_session(THREE);
	library.fd = pair[0];
	library.interest_rc = ZCONNECTIONLOSS;
	is_int(10, connection_prepare(session, boot_ms, &polled), "an attempt that failed, and its socket is there");
	is_int(boot_ms + 10, session->link.pace.pause_until, "an attempt that failed with a socket is followed by a pause");
	is_int(-1, polled.fd, "the socket of an attempt that failed is not polled");
	fstat(pair[0], &socket);
	open_session(THREE);
	library.fd = pair[0];
	library.interest_ms = 4000;
	is_int(3000, connection_prepare(session, boot_ms, &polled), "an attempt may take so long");
	is_int(pair[0], polled.fd, "the socket of an attempt is polled");
	is_int(boot_ms, session->link.attempt.begun.boot_ms, "the beginning of an attempt is noted");
	is_int(boot_ms + wall_ahead, session->link.attempt.begun.wall_ms, "the beginning of an attempt is noted by the wall clock");
	is_int(1, session->link.attempt.number, "an attempt is counted");
	boot_ms += 2999;
	is_int(1, connection_prepare(session, boot_ms, &polled), "an attempt has a millisecond left");
	is_int(1, session->link.attempt.number, "an attempt is counted once");
	ok(session->link.attempt.cut == LINK_NOT_CUT, "an attempt is not given up before its time");
	ok(recv(pair[1], &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN, "the socket of an attempt is open before its time");
	boot_ms += 1;
	is_int(4000, connection_prepare(session, boot_ms, &polled), "the library is asked when the attempt's time is over");
	ok(session->link.attempt.cut == LINK_CUT_FOR_SILENCE, "an attempt whose time is over is given up");
	is_int(0, recv(pair[1], &byte, 1, MSG_DONTWAIT), "the socket of an attempt that is given up is shut down");
	is_int(1000000, session->link.attempt.begun.boot_ms, "the beginning of an attempt that is given up stays");
	close(pair[0]);
	close(pair[1]);

	/* no bound on what is up */
	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	open_and_connect(THREE);
	library.fd = pair[0];
	library.interest_ms = 4000;
	boot_ms += 99999;
	is_int(4000, connection_prepare(session, boot_ms, &polled), "a connection that is up has no end");
	ok(session->link.attempt.cut == LINK_NOT_CUT, "a connection that is up is not given up");
	is_int(0, session->link.attempt.number, "a connection that is up is no attempt");
	close(pair[0]);
	close(pair[1]);
}

/* The first question to the leader after a pause: how long has it time? */
static void
test_first_question(void)
{
	static const struct
	{
		int			idle_ms;	/* since the connection was made */
		bool		is_answered;
		int			naddresses;
		int			expected;	/* after the question; 0: never */
		const char *what;
	}			cases[] = {
		{6001, false, 3, 3000, "the leader was not asked for more than half of the timeout"},
		{99999, false, 3, 3000, "nor for long"},
		{6000, false, 3, 0, "it was asked by heartbeats"},
		{99999, true, 3, 0, "it has answered"},
		{99999, false, 1, 0, "there is no other server"},
	};
	struct pollfd polled = {.fd = -1};
	int			pair[2];

	for (int i = 0; i < NELEMS(cases); i++)
	{
		const char *what = cases[i].what;
		int64_t		asked_at;

		open_and_connect(THREE);
		session->link.servers.naddresses = cases[i].naddresses;
		boot_ms += cases[i].idle_ms;
		asked_at = boot_ms;
		step_submit(request_new_silent(session, REQUEST_DELETE, "/l/a"));
		boot_ms += 1000;
		step_submit(request_new_silent(session, REQUEST_DELETE, "/l/b"));
		if (cases[i].is_answered)
			answer(last_of("delete"), ZOK);
		is_int(cases[i].expected == 0 ? INT64_MAX : asked_at + cases[i].expected,
			   session_cut_at(session), "%s", what);
	}

	/* an answer that is there already counts; then the connection is given up */
	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	open_and_connect(THREE);
	library.fd = session->link.fd = pair[0];
	library.interest_ms = 4000;
	boot_ms += 7000;
	step_submit(request_new_silent(session, REQUEST_DELETE, "/l/a"));
	boot_ms += 2999;
	is_int(1, connection_prepare(session, boot_ms, &polled), "the first question has a millisecond left");
	boot_ms += 1;
	is_int(1, write(pair[1], "", 1), "an answer is written to the socket");
	is_int(0, connection_prepare(session, boot_ms, &polled), "an answer that is there is to be read at once");
	ok(session->link.attempt.cut == LINK_NOT_CUT, "the connection is not given up ahead of an answer");
	is_int(1, read(pair[0], (char[1]) {0}, 1), "the answer is read");
	is_int(4000, connection_prepare(session, boot_ms, &polled), "the library is asked when the question's time is over");
	ok(session->link.attempt.cut == LINK_CUT_FOR_SILENCE, "the connection is given up");
	library.server = "127.0.0.1:1";
	disconnect_now(-4);
	is_state(ZK_CLIENT_SUSPENDED, ZK_LOSS_NONE, "the session goes on elsewhere");
	ok(session->link.end.was_silent, "the connection that was given up was silent");
	is_str("127.0.0.1:1", session->link.end.silent, "the silent server is known");
	is_str("Server \"127.0.0.1:1\" did not answer within 3000 ms", session->last_error, "the last error says how long the question was not answered");
	close(pair[0]);
	close(pair[1]);
}

/* When a session is ended on which nothing depends, and when not. */
static void
test_idle_end(void)
{
	Request    *request;

	open_and_connect(THREE);
	tick_session(boot_ms);
	session->wake_at = INT64_MAX;
	boot_ms += 3600000;
	tick_session(boot_ms);
	is_state(ZK_CLIENT_CONNECTED, ZK_LOSS_NONE, "a session without a bound on idle time is not ended");
	is_int(INT64_MAX, session->wake_at, "the loop does not wake up for idle time without a bound");

	open_and_connect(THREE);
	atomic_store(&session->page->idle_ms, 5000);
	interrupt_want(session->page);
	tick_session(boot_ms);
	is_int(boot_ms + 5000, session->wake_at, "the loop wakes up when the idle time is over");
	boot_ms += 3000;
	atomic_store(&session->page->is_in_use, 1);
	tick_session(boot_ms);
	boot_ms += 9000;
	tick_session(boot_ms);
	is_state(ZK_CLIENT_CONNECTED, ZK_LOSS_NONE, "a session with locks is not ended");
	atomic_store(&session->page->is_in_use, 0);
	tick_session(boot_ms);
	boot_ms += 4999;
	tick_session(boot_ms);
	is_state(ZK_CLIENT_CONNECTED, ZK_LOSS_NONE, "the idle time begins when there are no locks any more");

	/* a use without any request that was seen */
	ok(use_begin(session->page), "a use of the session begins");
	use_end(session->page);
	boot_ms += 1;
	session->wake_at = INT64_MAX;
	tick_session(boot_ms);
	is_state(ZK_CLIENT_CONNECTED, ZK_LOSS_NONE, "a use that is over begins the idle time anew");
	is_int(boot_ms + 5000, session->wake_at, "the loop wakes up when the new idle time is over");

	/* a use that goes on */
	ok(use_begin(session->page), "another use of the session begins");
	tick_session(boot_ms);
	boot_ms += 5000;
	session->wake_at = INT64_MAX;
	tick_session(boot_ms);
	is_state(ZK_CLIENT_CONNECTED, ZK_LOSS_NONE, "a session is not ended during a use");
	is_int(boot_ms + 5000, session->wake_at, "a session in use is looked at again after the idle time");
	atomic_store(&session->page->idle_ms, 1);
	boot_ms += 1;
	session->wake_at = INT64_MAX;
	tick_session(boot_ms);
	is_int(boot_ms + 100, session->wake_at, "a session in use is looked at no more often than each 100 ms");
	atomic_store(&session->page->idle_ms, 5000);
	use_end(session->page);
	tick_session(boot_ms);

	/* a request that has not been read */
	boot_ms += 5000;
	is_int(1, write(backend_end, "", 1), "the backend writes a byte of a request");
	tick_session(boot_ms);
	is_state(ZK_CLIENT_CONNECTED, ZK_LOSS_NONE, "a session with a request to be read is not ended");
	is_int(1, read(PROTOCOL_CHANNEL_FD, (char[1]) {0}, 1), "the byte of the request is read");
	session->in.end = session->in.start + 1;
	boot_ms += 5000;
	tick_session(boot_ms);
	is_state(ZK_CLIENT_CONNECTED, ZK_LOSS_NONE, "a session with half a request is not ended");
	session->in.end = session->in.start;

	/* one that is under way; then a connection that is not */
	request = request_new_silent(session, REQUEST_DELETE, "/l/a");
	step_submit(request);
	boot_ms += 5000;
	tick_session(boot_ms);
	is_state(ZK_CLIENT_CONNECTED, ZK_LOSS_NONE, "a session with a delete under way is not ended");
	answer(last_call(), ZOK);
	tick_session(boot_ms);
	disconnect_now(-4);
	boot_ms += 5000;
	tick_session(boot_ms);
	is_state(ZK_CLIENT_SUSPENDED, ZK_LOSS_NONE, "a session without a connection is not ended");
	connect_now();
	tick_session(boot_ms);
	is_state(ZK_CLIENT_LOST, ZK_LOSS_IDLE, "a session whose idle time is over is ended");
	is_int(ZK_LOSS_IDLE, atomic_load(&session->page->lost), "the page has the reason of the idle end");
	ok(atomic_load(&session->page->use) == USE_OVER, "no use begins of a session that was ended");
	is_int(0, around.nkilled, "an idle end interrupts no backend");
	ok(session_is_ending(session) && session_may_live(session), "a session that was ended is to be closed");
}

/* ---- what must not be ---- */

static void
open_again(void)
{
	const FrameTaken opening = opening_of(THREE);

	session_open(session, &opening);
}

/*
 * A session does not go back, and skips nothing; but what comes behind a loss was only
 * too late.
 */
static void
test_illegal_moves(void)
{
	open_session(THREE);
	(void) count_frames(FRAME_STATUS);
	session->status.state = ZK_CLIENT_STARTING;
	is_end_of_process("The session's program is at fault: illegal state of a session, 2 after 0",
					  connect_now, "connected ahead of connecting");
	open_session(THREE);
	(void) count_frames(FRAME_STATUS);
	is_end_of_process("The session's program is at fault: illegal state of a session, 1 after 1",
					  open_again, "opened twice");

	open_and_connect(THREE);
	session_lose(session, ZK_LOSS_EXPIRED);
	connect_now();
	disconnect_now(-4);
	library.watcher(session->zh, ZOO_SESSION_EVENT, ZOO_AUTH_FAILED_STATE, NULL, session);
	library.watcher(session->zh, ZOO_SESSION_EVENT, ZOO_EXPIRED_SESSION_STATE, NULL, session);
	session_end(session, ZK_LOSS_IDLE);
	is_state(ZK_CLIENT_LOST, ZK_LOSS_EXPIRED, "what was known first counts");
}

int
main(void)
{
	test_opening();
	test_refused_opening();
	test_first_address();
	test_names_without_room();
	test_looking_up_again();
	test_waiting_for_names();
	test_other_servers();
	test_connection();
	test_odd_servers();
	test_deadlines();
	test_late_connections();
	test_dropped();
	test_contact();
	test_attempts();
	test_silence();
	test_unanswered();
	test_standstill();
	test_end();
	test_rest();
	test_hearing();
	test_pauses();
	test_pauses_of_our_own();
	test_library_times();
	test_first_question();
	test_idle_end();
	test_illegal_moves();
	return done_testing();
}
