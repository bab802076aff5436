/*-------------------------------------------------------------------------
 *
 * program_session.c
 *	  The handle of ZooKeeper's library, the states of the session, and its
 *	  loss.
 *
 * The one rule: a program that declares its session lost also ends it.  The
 * backend is told first, so that it does not rely on locks that are about to
 * go; then, as soon as there is a connection, the session is closed
 * (program_main.c).
 *
 *-------------------------------------------------------------------------
 */
#include "program.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "program_tls.h"
#include "servers.h"

/*
 * A session may be granted at most this timeout; no more can be asked for, see
 * zklock.session_timeout.  An answer beyond it is not from ZooKeeper: the library
 * takes the banner of an SSH server for a session of two weeks.
 */
#define SANE_SESSION_TIMEOUT_MS (60 * 60 * 1000)

/*
 * So many connections in a row may end before anything has been answered.  A
 * server that hangs up on the first that it hears of a resumed session, the
 * watches or a request that is too long for it, does so for ever.
 */
#define UNANSWERED_MAX 3

/*
 * How long a server may take to answer an attempt to connect if there is no
 * session yet and another server; longer from round to round.  And how long
 * its leader may take to answer the first request of a session that was idle.
 */
#define ATTEMPT_MS 3000

/*
 * Without a connection names are looked up at once.  The first attempt to connect
 * waits for that, for so long at most, or for a tenth of the session timeout if
 * that is less.  They are looked up again after twice that time, and then after
 * three times.
 */
#define LOOK_UP_MS 1000
#define LOOK_UP_FACTOR_MAX 3

/* A look-up that takes longer is told to who waits for a connection. */
#define SLOW_MS 100

/* See note_disconnected(). */
#define MARGIN_MIN_MS 200

/* Nobody's address: see R13. */
#define STAND_IN "255.255.255.255:1"

/* For log_line(): the library calls it without a context. */
static Session *logging_session;

static void fail_opening(Session *session, ZkClientLoss loss, const char *why);
static void connect_session(Session *session);
static int64_t look_up_ms(const Session *session);
static void give_list(Session *session);
static void bound_again(Session *session, int64_t now);
static const char *describe_error(const Session *session, char *text,
								  size_t size);
static void session_event(zhandle_t *zh, int type, int state,
						  const char *path, void *context);
static void note_expired(Session *session);
static void note_connected(Session *session, int state);
static void begin_link(Session *session, int64_t now);
static bool is_unanswered(const Session *session, int64_t now);
static int64_t lost_deadline(const Session *session);
static void note_disconnected(Session *session);
static void move_to(Session *session, ZkClientState state);
static void log_line(const char *message);
static void note_end_of_link(Session *session, const char *line);
static void say_why_it_ended(Session *session, const char *text);
static void note_silence(Session *session);
static bool has_demanded(const Link *link);
static int64_t suspended_ms(void);
static int64_t last_contact(const Session *session);

/* ---------------------------------------------------------------------
 * Opening
 * ---------------------------------------------------------------------
 */

void
session_open(Session *session, const FrameTaken *opening)
{
	ServerList	list;
	char		why[TLS_WHY_SIZE];

	logging_session = session;
	srand48((long) protocol_now() + 7919L * getpid());
	session->open = opening->frame.u.open;
	session->status.ticket = session->open.ticket;
	session->has_auth = opening->blobs[1] != NULL;

	/* the server takes a certificate's subject by itself */
	if (opening->blobs[1] != NULL && opening->blobs[2] != NULL &&
		strcmp(opening->blobs[1], PROTOCOL_CERTIFICATE) != 0)
	{
		session->scheme = program_need(strdup(opening->blobs[1]));
		session->credentials = program_need(strdup(opening->blobs[2]));
	}
	if (!servers_parse(opening->blobs[0], &list, why))
	{
		fail_opening(session, ZK_LOSS_RESOLVE, why);
		return;
	}
	session->names = names_begin(&list);
	names_look_up(session->names);
	session->link.servers.look_up_at = protocol_now() + look_up_ms(session);
	if (opening->blobs[3] != NULL && !tls_begin(opening->blobs[3], why))
		fail_opening(session, ZK_LOSS_TLS, why);
	else
		connect_session(session);
}

static void
fail_opening(Session *session, ZkClientLoss loss, const char *why)
{
	session_set_error(session, "%s", why);
	session_lose(session, loss);
}

bool
session_is_opening(const Session *session)
{
	return session->open.backend_pid != 0 && session->zh == NULL &&
		session->status.state != ZK_CLIENT_LOST;
}

/*
 * If there is an address by now, give the library what is known and let it
 * connect.  The credentials are presented ahead of every queued request, after
 * reconnects too; a refusal arrives as a session event, so that their
 * completion may be NULL, here and here alone (R12).
 */
static void
connect_session(Session *session)
{
	const FrameOpen *open = &session->open;
	const ServerList *list = names_list(session->names);
	ServerAddresses *addresses = &session->addresses;
	clientid_t	id = {.client_id = open->ticket.session_id};
	char		text[SERVERS_TEXT_SIZE];

	if (!names_collect(session->names, addresses))
	{
		if (names_awaited_since(session->names) == INT64_MAX)
			fail_opening(session, ZK_LOSS_RESOLVE, addresses->complaint);
		return;
	}
	if (addresses->complaint[0] != '\0')
		session_set_error(session, "%s", addresses->complaint);
	tls_expect(list, addresses->all, addresses->count);
	session->link.servers.naddresses =
		servers_write(addresses, open->first_server, text);
	zoo_set_debug_level(ZOO_LOG_LEVEL_ERROR);
	zoo_deterministic_conn_order(1);	/* begins where we say */
	memcpy(id.passwd, open->ticket.password, sizeof(id.passwd));
	session->zh = zookeeper_init2(text, session_event,
								  open->session_timeout_ms,
								  id.client_id != 0 ? &id : NULL, session,
								  ZOO_NO_LOG_CLIENTENV, log_line);
	if (session->zh == NULL)
	{
		session_set_error(session, "Could not start the ZooKeeper client: %s",
						  strerror(errno));
		session_lose(session, ZK_LOSS_RESOURCES);
		return;
	}
	zoo_set_servers_resolution_delay(session->zh, -1);	/* R1 */
	if (session->credentials != NULL)
	{
		zoo_add_auth(session->zh, session->scheme, session->credentials,
					 (int) strlen(session->credentials), NULL, NULL);
		explicit_bzero(session->credentials, strlen(session->credentials));
		free(session->credentials);
		free(session->scheme);
		session->credentials = session->scheme = NULL;
	}
	move_to(session, ZK_CLIENT_CONNECTING);
}

/* ---------------------------------------------------------------------
 * The servers
 * ---------------------------------------------------------------------
 */

/*
 * While there is a connection nothing is looked up, and what was found last
 * waits.
 */
void
session_follow_names(Session *session, int64_t now)
{
	Link	   *link = &session->link;
	bool		can_connect;
	int64_t		since;
	bool		is_slow;

	if (session->zh != NULL)
	{
		can_connect = !is_unrecoverable(session->zh);
		session_check_connection(session);
	}
	else
		can_connect = session_is_opening(session);
	if (session->names == NULL || link->is_up || !can_connect)
		return;
	if (names_can_change(session->names))
	{
		if (now >= link->servers.look_up_at)
		{
			names_look_up(session->names);
			if (link->servers.nlook_ups < LOOK_UP_FACTOR_MAX - 1)
				link->servers.nlook_ups++;
			link->servers.look_up_at = now +
				look_up_ms(session) * (1 + link->servers.nlook_ups);
		}
		program_wake_at(session, link->servers.look_up_at);
	}
	if (link->servers.is_late && link->fd < 0 && session->zh != NULL)
		give_list(session);

	since = names_awaited_since(session->names);
	is_slow = since != INT64_MAX && now - since >= SLOW_MS;
	if (is_slow != session->is_slow && !session->status.was_connected)
		session->is_status_news = true;
	session->is_slow = is_slow;
	if (since != INT64_MAX && !is_slow)
		program_wake_at(session, since + SLOW_MS);
}

/*
 * What was found last may be weeks old.  Meanwhile a server of another ensemble
 * may have got the address of one that has moved: it does not know the session,
 * and would end it.
 */
int64_t
session_names_ms(const Session *session, int64_t now)
{
	const Link *link = &session->link;
	int			state = zoo_state(session->zh);

	if (link->is_up || now >= link->servers.names_until ||
		state == ZOO_CONNECTING_STATE || state == ZOO_ASSOCIATING_STATE ||
		names_awaited_since(session->names) == INT64_MAX)
		return 0;
	return link->servers.names_until - now;
}

static int64_t
look_up_ms(const Session *session)
{
	int			timeout = session_timeout_ms(session);

	return timeout / 10 < LOOK_UP_MS ? timeout / 10 : LOOK_UP_MS;
}

void
session_take_names(Session *session, int64_t now)
{
	if (!names_take(session->names))
		return;
	session->link.servers.is_late = true;
	if (session_is_opening(session))
		connect_session(session);
	else if (!session->link.is_up && session->link.fd >= 0)
		bound_again(session, now);
}

/*
 * There is no connection, nor an attempt: the library may have another list
 * (R13).  Chance decides which of many sessions begins with which server.
 */
static void
give_list(Session *session)
{
	Link	   *link = &session->link;
	const ServerList *list = names_list(session->names);
	ServerAddresses now;
	char		text[SERVERS_TEXT_SIZE];
	int			count;

	link->servers.is_late = false;
	if (!names_collect(session->names, &now))
		return;					/* not yet: those of before */
	tls_expect(list, now.all, now.count);
	if (servers_are_same(&now, &session->addresses))
		return;
	count = servers_write(&now, (unsigned) (drand48() * now.count), text);
	if (zoo_set_servers(session->zh, STAND_IN) != ZOK ||
		zoo_set_servers(session->zh, text) != ZOK)
	{
		link->servers.is_late = true;	/* without memory; try again */
		return;
	}
	session->addresses = now;

	/* what was said of the others is no reason any more */
	if (!session->status.was_connected)
		session_set_error(session, "%s", now.complaint);
	link->servers.naddresses = count;
	link->pace.pause_until = 0;
	link->servers.is_fresh = true;
}

/*
 * An attempt to connect is under way, and the list is about to be another one:
 * it has its part of the time in that, or none if its server is not in it.
 */
static void
bound_again(Session *session, int64_t now)
{
	Link	   *link = &session->link;
	int64_t		until = link->attempt.until;
	ServerAddresses later;

	if (link->attempt.cut == LINK_CUT_FOR_SILENCE ||
		!names_collect(session->names, &later) ||
		servers_are_same(&later, &session->addresses))
		return;
	link->servers.naddresses = later.count | 1;
	session_bound_attempt(session, now);
	if (!servers_contain(&later, zoo_get_current_server(session->zh)))
		link->attempt.until = now;
	else if (link->attempt.until > until)
		link->attempt.until = until;
}

void
session_adopt(Session *session, Names *names)
{
	names_end(session->names);
	session->names = names;
	session->link.servers.is_late = true;
	if (session_is_opening(session))
		connect_session(session);
}

/* ---------------------------------------------------------------------
 * States
 * ---------------------------------------------------------------------
 */

bool
session_is_ending(const Session *session)
{
	return session->orphaned_at != 0 ||
		session->status.state == ZK_CLIENT_LOST;
}

int
session_timeout_ms(const Session *session)
{
	if (session->status.session_timeout_ms != 0)
		return session->status.session_timeout_ms;
	return session->open.session_timeout_ms;
}

bool
session_may_live(const Session *session)
{
	if (session->status.loss == ZK_LOSS_DEMAND)
		return false;			/* no server takes a close */
	if (session->zh == NULL && !session_is_opening(session))
		return false;
	if (session->zh != NULL && is_unrecoverable(session->zh))
		return false;
	return session->status.was_connected ||
		session->status.ticket.session_id != 0;
}

void
session_tick(Session *session, int64_t now)
{
	int			timeout = session->status.session_timeout_ms;

	if (session_is_ending(session))
		return;
	if (session->status.state == ZK_CLIENT_SUSPENDED &&
		now >= lost_deadline(session))
		session_lose(session, ZK_LOSS_SILENCE);
	else if (is_unanswered(session, now))
		session_end(session, ZK_LOSS_UNANSWERED);
	if (session->status.state == ZK_CLIENT_SUSPENDED)
		program_wake_at(session, lost_deadline(session));
	if (session->link.is_up && session->traffic.npending > 0)
		program_wake_at(session, session->traffic.pending_since + timeout);
}

/* The session's state changed: watcher function of the library. */
static void
session_event(zhandle_t *zh, int type, int state, const char *path,
			  void *context)
{
	Session    *session = context;

	if (type != ZOO_SESSION_EVENT)
		return;
	if (state == ZOO_CONNECTED_STATE || state == ZOO_READONLY_STATE)
		note_connected(session, state);
	else if (state == ZOO_EXPIRED_SESSION_STATE)
		note_expired(session);
	else if (state == ZOO_AUTH_FAILED_STATE)
		session_lose(session, ZK_LOSS_AUTH);
	else
		note_disconnected(session);
}

/* Which server says so tells whether it is one of ours. */
static void
note_expired(Session *session)
{
	const char *server = zoo_get_current_server(session->zh);

	if (session->status.state == ZK_CLIENT_LOST)
		return;
	session_set_error(session, "Server \"%s\" has said: %s",
					  server != NULL ? server : "",
					  code_text(ZSESSIONEXPIRED));
	session_lose(session, ZK_LOSS_EXPIRED);
}

static void
note_connected(Session *session, int state)
{
	int			timeout = zoo_recv_timeout(session->zh);
	const		clientid_t *id = zoo_client_id(session->zh);
	const char *server = zoo_get_current_server(session->zh);
	int64_t		now = protocol_now();
	const char *stale;

	begin_link(session, now);
	if (session->status.state == ZK_CLIENT_LOST)
		return;					/* nobody relies on it any more: it is closed */
	if (session->status.state == ZK_CLIENT_SUSPENDED &&
		now >= lost_deadline(session))
	{
		session_lose(session, ZK_LOSS_SILENCE);
		return;
	}
	if (state != ZOO_CONNECTED_STATE || timeout <= 0 ||
		timeout > SANE_SESSION_TIMEOUT_MS)
	{
		session_set_error(session, "What answers at \"%s\" is not ZooKeeper",
						  server != NULL ? server : "");
		session_lose(session, ZK_LOSS_PROTOCOL);
		return;
	}
	session->status.ticket.session_id = id->client_id;
	memcpy(session->status.ticket.password, id->passwd,
		   sizeof(session->status.ticket.password));
	session->status.session_timeout_ms = timeout;
	session->status.was_connected = true;
	snprintf(session->server, sizeof(session->server), "%s",
			 server != NULL ? server : "");
	stale = tls_describe(session->link.fd, session->tls, sizeof(session->tls));
	if (stale[0] != '\0')
		session_set_error(session, "%s", stale);
	if (session->standstill.next_check_at == 0)
		session->standstill.next_check_at = now + timeout / 3;
	move_to(session, ZK_CLIENT_CONNECTED);

	/* its server may hang up before the next tick, as those before did */
	if (is_unanswered(session, now))
		session_end(session, ZK_LOSS_UNANSWERED);
}

/* There is a connection: what is known of the one before is over. */
static void
begin_link(Session *session, int64_t now)
{
	Link	   *link = &session->link;

	link->is_up = true;
	link->number++;
	link->attempt.number = link->servers.nlook_ups = 0;
	link->end.silent[0] = '\0';
	link->up_since = now;

	/*
	 * If nothing was answered over the connection before, this one is asked
	 * at once, for else it might have had no time to answer.
	 */
	if (link->pace.nunanswered++ == 0)
		link->pace.unanswered_at = now;
	session->traffic.pending_since = session->traffic.retry_at = now;
	link->contact.asked_leader_at = now;
	if (link->pace.nunanswered > 1)
		link->contact.asked_leader_at = 0;
	link->contact.asked_at = link->contact.led_at = now;
	link->contact.unled_at = 0;
	contact_begin(&link->contact.log, link->attempt.begun);
	link->suspended_ms = suspended_ms();
	link->end.contact_at = 0;
}

/*
 * Has nothing been answered for the session timeout, though there are
 * connections?  Over one of them a real server cannot do that: the answers to
 * the library's pings wait behind the others.
 */
static bool
is_unanswered(const Session *session, int64_t now)
{
	int			timeout = session->status.session_timeout_ms;

	if (!session->link.is_up)
		return false;
	return (session->link.pace.nunanswered > UNANSWERED_MAX &&
			now - session->link.pace.unanswered_at >= timeout) ||
		(session->traffic.npending > 0 &&
		 now - session->traffic.pending_since >= timeout);
}

/* Has the server of this connection, or of the last one, demanded something? */
static bool
has_demanded(const Link *link)
{
	return link->pace.ndemands > 0 && link->pace.demanded_over == link->number;
}

/*
 * Servers can differ in what they demand while that is being changed, so each
 * has its turn; until then it is as if they had hung up.
 */
void
session_note_end(Session *session, int code)
{
	Link	   *link = &session->link;
	const char *server = zoo_get_current_server(session->zh);
	int64_t		received_at;

	if (has_demanded(link))
		return;					/* one answer of many */
	session_set_error(session, "Server \"%s\" has said: %s",
					  server != NULL ? server : "", code_text(code));
	if (code_loss(code) != ZK_LOSS_DEMAND ||
		++link->pace.ndemands >= link->servers.naddresses)
	{
		session_end(session, code_loss(code));
		return;
	}
	link->pace.demanded_over = link->number;
	shutdown(tls_socket(link->fd, &received_at), SHUT_RDWR);
}

void
session_end(Session *session, ZkClientLoss loss)
{
	session_lose(session, loss);
	session->is_watch_over = true;
}

void
session_lose(Session *session, ZkClientLoss loss)
{
	FrameStatus *status = &session->status;

	if (status->state == ZK_CLIENT_LOST)
		return;
	assert(loss != ZK_LOSS_NONE);
	status->lost_at = protocol_now();
	if (status->suspended_at == 0)
		status->suspended_at = status->lost_at;
	status->loss = loss;
	move_to(session, ZK_CLIENT_LOST);
	backend_flush(session);
	atomic_store(&session->page->lost, (uint32_t) loss);
	atomic_fetch_add(&session->page->nflushed, 1);
	if (loss != ZK_LOSS_IDLE)
		backend_interrupt(session);
}

void
session_end_illegal(Session *session, const char *machine, int from, int to)
{
	session_set_error(session, "The session's program is at fault: illegal state of %s, %d after %d",
					  machine, to, from);
	session_lose(session, ZK_LOSS_PROGRAM);
	assert(false);
	exit(1);
}

/* The interrupt may be wanted only since the connection was lost. */
static int64_t
lost_deadline(const Session *session)
{
	if (session->early_deadline < session->lost_deadline &&
		atomic_load(&session->page->loss_interrupt) == INTERRUPT_WANTED)
		return session->early_deadline;
	return session->lost_deadline;
}

/*
 * The connection is gone; how long may the session live?  The ensemble ends
 * it one session timeout (T) after it last heard of us.  We know when we last
 * heard of the ensemble; if not, the library gives a silent connection up
 * after 2/3 T, and one that was reset had its last heartbeat at most T/3
 * ago.  A fiftieth of T, MARGIN_MIN_MS at least, goes to clocks and to what a
 * statement needs to end.  It is no more: an ensemble that lost its leader may
 * be back only after syncLimit ticks, two thirds of T by default.
 *
 * Where the loss interrupts nobody there is nothing to be early for.
 */
static void
note_disconnected(Session *session)
{
	Link	   *link = &session->link;
	int64_t		now = protocol_now();
	int64_t		contact_at = link->end.contact_at;
	int			timeout = session->status.session_timeout_ms;
	int			margin_ms = timeout / 50;

	if (link->is_up)
	{
		link->servers.look_up_at = now;
		link->servers.names_until = now + look_up_ms(session);
	}
	link->is_up = false;
	if (session->status.state != ZK_CLIENT_CONNECTED)
		return;
	if (contact_at == 0 && link->end.was_silent)
		contact_at = now - timeout * 2 / 3;
	else if (contact_at == 0)
		contact_at = now - timeout / 3;
	if (margin_ms < MARGIN_MIN_MS)
		margin_ms = MARGIN_MIN_MS;
	session->status.suspended_at = now;
	if (link->end.was_silent)
		session->status.suspended_at = contact_at;
	session->early_deadline = contact_at + timeout - margin_ms;
	session->lost_deadline = now + timeout;
	session->lost_deadline = lost_deadline(session);
	move_to(session, ZK_CLIENT_SUSPENDED);
}

/*
 * Where the library cannot send a request it closes the connection and says
 * so to nobody; and if no later attempt to connect succeeds, it never does.
 */
void
session_check_connection(Session *session)
{
	int			state = zoo_state(session->zh);

	if (session->link.is_up && state != ZOO_CONNECTED_STATE &&
		state != ZOO_READONLY_STATE && !is_unrecoverable(session->zh))
		note_disconnected(session);
}

/*
 * The one place where a session changes its state.  The backend reads of it
 * before it is interrupted, and before the session is closed.
 */
static void
move_to(Session *session, ZkClientState state)
{
	FrameStatus *status = &session->status;

	if (!move_is_legal(protocol_session_moves, status->state, (int) state))
		session_end_illegal(session, "a session", status->state, (int) state);
	if (state == ZK_CLIENT_CONNECTED)
		status->suspended_at = 0;
	status->state = state;
	session->is_status_news = true;
	session_report(session);
}

void
session_report(Session *session)
{
	if (session->is_status_news)
	{
		const Frame frame = {
			.kind = FRAME_STATUS,.u.status = session->status
		};
		char		error[sizeof(session->last_error)];
		const FrameBlob blobs[FRAME_NBLOBS] = {
			frame_text(session->server),
			frame_text(describe_error(session, error, sizeof(error))),
			frame_text(ZOO_VERSION), frame_text(session->tls)
		};

		session->is_status_news = false;
		backend_put(session, &frame, blobs, true);
	}
}

/*
 * What is in the way of a first connection: the latest error, and the names
 * that take long.  Result: that text.
 */
static const char *
describe_error(const Session *session, char *text, size_t size)
{
	size_t		length = (size_t) snprintf(text, size, "%s", session->last_error);

	if (!session->is_slow || session->status.was_connected ||
		session->status.state == ZK_CLIENT_LOST)
		return text;
	for (int i = 0; i < names_list(session->names)->nservers && length < size; i++)
		if (names_is_awaited(session->names, i))
			length += (size_t) snprintf(text + length, size - length,
										"%s \"%s\" is still being looked up",
										length > 0 ? "; host" : "Host",
										names_list(session->names)->servers[i].host);
	return text;
}

/*
 * An error is of interest to who waits for a connection.  What comes behind a
 * loss is not its reason.
 */
void
session_set_error(Session *session, const char *format,...)
{
	va_list		args;

	if (session->status.state == ZK_CLIENT_LOST)
		return;
	va_start(args, format);
	vsnprintf(session->last_error, sizeof(session->last_error), format, args);
	va_end(args);
	session->is_status_news |= session->status.state != ZK_CLIENT_CONNECTED;
}

/* ---------------------------------------------------------------------
 * The connection
 * ---------------------------------------------------------------------
 */

/*
 * A line of the library's log: keep what follows "ZOO_ERROR@function@line: ".
 * The library logs the end of a connection before it closes the socket, and
 * before it tells us otherwise.
 */
static void
log_line(const char *message)
{
	Session    *session = logging_session;
	const char *text = strstr(message, "ZOO_ERROR@");

	if (text != NULL)
		text = strstr(text, ": ");
	if (text != NULL)
		text += 2;
	else
		text = message;
	if (strstr(text, " zk retcode=") != NULL)
		note_end_of_link(session, text);
	else
		session_set_error(session, "%.*s", (int) strcspn(text, "\r\n"), text);
}

/* That line says that the connection, or an attempt, has ended. */
static void
note_end_of_link(Session *session, const char *line)
{
	Link	   *link = &session->link;
	LinkCut		cut = link->attempt.cut;
	const char *error = tls_error(link->fd);

	if (cut == LINK_NOT_CUT && !has_demanded(link))
	{
		if (error[0] != '\0')
			session_set_error(session, "%s", error);
		else
			say_why_it_ended(session, strchr(line, '(') + 1);
	}
	link->end.was_silent = strstr(line, "retcode=-7") != NULL ||
		(cut == LINK_CUT_FOR_SILENCE && link->is_up);
	note_silence(session);
	link->end.contact_at = last_contact(session);
	link->fd = -1;
}

/*
 * The words for an end of the connection.  text: the system's word for it, and
 * a parenthesis.  The library says "Host is down" where a server that is up
 * has closed the connection.
 */
static void
say_why_it_ended(Session *session, const char *text)
{
	const char *server = zoo_get_current_server(session->zh);

	if (strncmp(text, "Host is down", 12) == 0 ||
		strncmp(text, "Broken pipe", 11) == 0 ||
		strncmp(text, "Connection reset", 16) == 0)
		session_set_error(session, "Server \"%s\" closed the connection", server);
	else
		session_set_error(session, "Server \"%s\" cannot be reached: %.*s",
						  server, (int) strcspn(text, ")"), text);
}

/*
 * All servers of the list are to have their turn twice in what is left of the
 * session timeout, so each attempt may take its part of what is left now.
 * One that was silent has a quarter of that until another one is found.
 */
void
session_bound_attempt(Session *session, int64_t now)
{
	Link	   *link = &session->link;
	LinkAttempt *attempt = &link->attempt;
	int			naddresses = link->servers.naddresses;
	int64_t		least_ms = session->status.session_timeout_ms / 5;
	int64_t		left_ms = session->early_deadline - now;
	int64_t		bound_ms = (int64_t) ATTEMPT_MS *
		(1 + attempt->number++ / naddresses);

	if (left_ms < least_ms)
		left_ms = least_ms;
	if (session->status.state == ZK_CLIENT_SUSPENDED)
		bound_ms = left_ms / (2 * naddresses);
	else if (naddresses == 1)
		bound_ms = INT32_MAX;
	attempt->cut = LINK_NOT_CUT;
	attempt->is_hurried = naddresses > 1 &&
		strcmp(zoo_get_current_server(session->zh), link->end.silent) == 0;
	if (attempt->is_hurried)
		bound_ms /= 4;
	attempt->until = now + bound_ms;
}

/*
 * A server that has lost its leader answers the pulses of an idle session.
 * Only the first request to the leader finds that out, and its caller waits.
 * So that connection is given up as early as an attempt, if there is another
 * server; not one of a session that was in use, for its heartbeats are silent,
 * too.  The next connection is made with the leader's consent: from then on it
 * was in touch.
 */
int64_t
session_cut_at(const Session *session)
{
	const Link *link = &session->link;

	if (!link->is_up && link->pace.rest_at != 0 &&
		link->pace.rest_at < link->attempt.until)
		return link->pace.rest_at;
	if (!link->is_up)
		return link->attempt.until;
	if (link->contact.unled_at == 0 || link->servers.naddresses == 1 ||
		session_is_ending(session) ||
		link->contact.unled_at - link->contact.led_at <=
		session->status.session_timeout_ms / 2)
		return INT64_MAX;
	return link->contact.unled_at + ATTEMPT_MS;
}

/*
 * The connection, or an attempt, has ended.  Was its server silent?  One that
 * closes it has answered.
 */
static void
note_silence(Session *session)
{
	Link	   *link = &session->link;
	const char *server = zoo_get_current_server(session->zh);
	bool		is_cut = link->attempt.cut == LINK_CUT_FOR_SILENCE;
	int64_t		asked_at = link->attempt.begun.boot_ms;

	if (link->is_up)
		asked_at = link->contact.unled_at;
	if (is_cut && (link->is_up || !link->attempt.is_hurried))
		session_set_error(session, "Server \"%s\" did not answer within %d ms",
						  server, (int) (session_cut_at(session) - asked_at));
	if (is_cut || link->end.was_silent)
		snprintf(link->end.silent, sizeof(link->end.silent), "%s", server);
	else if (strcmp(server, link->end.silent) == 0)
		link->end.silent[0] = '\0';
}

/* How long the machine has been suspended since it was booted. */
static int64_t
suspended_ms(void)
{
	return protocol_now() - protocol_clock(CLOCK_MONOTONIC);
}

/*
 * When did the connection last receive anything, 0 if that cannot be told?
 * The kernel knows, and counts without suspensions; those since the
 * connection was made may all have come after the last contact.  What TLS has
 * not found to be the server's is none.
 */
static int64_t
last_contact(const Session *session)
{
	struct tcp_info info;
	socklen_t	size = sizeof(info);
	int64_t		received_at;
	int			fd = tls_socket(session->link.fd, &received_at);
	int64_t		contact_at;

	if (session->link.fd < 0 || !session->link.is_up ||
		getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0)
		return 0;
	contact_at = protocol_now() - info.tcpi_last_data_recv -
		(suspended_ms() - session->link.suspended_ms);
	return contact_at < received_at ? contact_at : received_at;
}
