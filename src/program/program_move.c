/*-------------------------------------------------------------------------
 *
 * program_move.c
 *	  The session's program: other servers for a session that lives.
 *
 * zklock.servers, or how to use TLS with them, is changed while the session
 * holds locks: an ensemble has been moved to other servers, and the previous
 * servers are about to stop; or it speaks TLS now, at other ports.  The
 * session follows.  The news comes from the configuration, which the
 * postmaster keeps in a page of memory (settings_page.h), so that an idle
 * backend need not be woken; and from the backend where its own settings are
 * others (FRAME_SERVERS).
 *
 * The one rule: a server that does not know a session ends it.  So other
 * servers are not used before one of them has proved that it knows this one.
 * For that the program connects to it beside the connection that is there, as
 * the library would when it reconnects, with the session's id and password,
 * and reads the answer.
 *	- It grants the session: the ensemble is the same, and the session is at
 *	  that server now.  The library gets the new list, and its connection is
 *	  cut, so that it makes another one: to a server of that list.
 *	- It does not know it: the servers are another ensemble's.  All stays as it
 *	  was, and the backend says so in the log.
 *	- It closes the connection, as a server does that has not seen what the
 *	  session has seen: one that lags, a single server that was restored from a
 *	  copy and may know the session, or one of a younger ensemble.  It is asked
 *	  once more, without saying what was seen: it may not know the session, which
 *	  is told as above; that it does is no proof then.
 *	- No answer: it is asked again, or another one, with growing pauses.  All
 *	  stays as it was until then.
 * An ensemble that was restored from a copy, and has elected a leader since,
 * knows the session and has a greater zxid than the session has seen: nothing
 * tells it from the original, which has to be stopped before it is named
 * (docs/backup.md).
 * No proof is needed if there is no session yet; nor if the server that we are
 * connected to, or while we are not any that the session has used so far, is
 * behind the new list: then it can do no more harm than it could before.  TLS
 * that is switched on or off always needs it.
 *
 * The proof is ours and not a second handle of the library's, for it is a
 * request of 49 bytes: zookeeper_close() would end the session itself if it
 * was called while that handle is connected, and what the library logs does
 * not say of which handle it speaks.
 *
 * Can two connections of one session make anything unsafe?
 *	- Two clients do not use it: over the connection that proves nothing is
 *	  asked, and no watch is set.
 *	- The server that grants it becomes the session's owner at the leader.
 *	  What is sent over the first connection after that, and has to go to the
 *	  leader, is refused as SESSIONMOVED: it is not executed, and the server
 *	  closes the connection (FinalRequestProcessor).  The library sees a lost
 *	  connection, and the program asks again over the next one, as ever.  What
 *	  was sent before may still be executed or not: the same.
 *	- What that refusal leaves at the first server is executed only if the
 *	  session comes back there, by another connection: that is the late request
 *	  for which program_request.c looks.
 *	- Until the cut the first server goes on reporting the session as active.
 *	  So does a previous server whose connection to us is interrupted.  It can
 *	  only lengthen the life of the session.
 *	- A date of a proof (contact.h) comes of what was answered over the
 *	  library's connection alone, and of when that was begun.  The connection
 *	  that proves is no contact, though it has touched the session.  It asks
 *	  for the timeout that the session has, for the leader goes by the last one
 *	  that was granted.  If that is a shorter one (maxSessionTimeout) the
 *	  session has it from then on, and not only from the next connection.
 *	- The first server forgets the watches with its connection; the library
 *	  sets them again over the next one, as after each reconnect.
 *
 * Thousands of sessions hear of a reload at the same time.  So each waits for
 * a random part of MOVE_DELAY_MS first.
 *
 *-------------------------------------------------------------------------
 */
#include "program.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "program_names.h"
#include "program_tls.h"
#include "servers.h"
#include "settings_page.h"

/*
 * For so long at most, and for a tenth of the session timeout, a session waits
 * before it follows.
 */
#define MOVE_DELAY_MS 2000

/* How long a server may take to answer at first, and later. */
#define ANSWER_MIN_MS 2000
#define ANSWER_MAX_MS 10000

/* The pauses between rounds in which no server has answered. */
#define PAUSE_MIN_MS 500
#define PAUSE_MAX_MS 30000

/* The same while the session has no connection. */
#define PAUSE_SUSPENDED_MS 300

/* So many rounds in vain are told. */
#define SILENT_ROUNDS 3

/*
 * For so long the library's connection is kept for requests that are not
 * answered yet, once the session has been proved elsewhere.
 */
#define CUT_MS 1000

/*
 * The request to connect, without its length; and of the answer what stands
 * before the password.  A server that knows nothing of read-only clients
 * leaves out the last byte of either.
 */
#define REQUEST_SIZE 45
#define ANSWER_SIZE 20

/* Of each message over the library's connection: its length, xid and zxid. */
#define HEAD_SIZE (4 + 4 + 8)

/* The words of what has become of other servers, for the log. */
static const char *const outcome_words[] = {
	[ZK_MOVE_NONE] = "none",
	[ZK_MOVE_DONE] = "used from now on; the session is known there, or at its server",
	[ZK_MOVE_SILENT] = "none of them answers",
	[ZK_MOVE_UNKNOWN] = "the session is not known there, says",
	[ZK_MOVE_TLS] = "no TLS with them"
};
_Static_assert(sizeof(outcome_words) / sizeof(outcome_words[0]) == ZK_MOVE_LAST + 1,
			   "each outcome has its words");

typedef enum MovePhase
{
	MOVE_NONE,					/* nothing else is wanted */
	MOVE_DELAYED,				/* until due_at, after the news */
	MOVE_ASKING,				/* until due_at: a server; or, without a
								 * connection, for the address of any */
	MOVE_PAUSED,				/* until due_at, after a round in vain */
	MOVE_CUTTING				/* until due_at, or until nothing is under way:
								 * the library's connection is to be cut */
} MovePhase;

/*
 * What the library receives.  It keeps the latest change of which any answer
 * tells for its next request to connect, and shows it to nobody.
 */
typedef struct Overheard
{
	ino_t		socket;			/* of the connection */
	int64_t		nmessages;		/* over it */
	size_t		nhead;			/* bytes of the head of this message so far */
	unsigned char head[HEAD_SIZE];
	size_t		left;			/* of it, valid once its length is there */
} Overheard;

struct Move
{
	Overheard	overheard;
	bool		follows_page;
	uint32_t	seen;			/* which state of the page has been read */

	/* what is used; NULL before the session is opened */
	char	   *servers;
	char	   *tls;			/* "": no TLS */

	/* what was wanted last and is of another ensemble; NULL: nothing was */
	char	   *refused_servers;
	char	   *refused_tls;

	MovePhase	phase;
	int64_t		due_at;			/* valid unless that is NONE */

	/* what is wanted instead; NULL, and the rest not valid, if nothing is */
	char	   *wanted_servers;
	char	   *wanted_tls;
	ServerList	list;
	Names	   *names;			/* of that list; NULL while DELAYED */
	int			nrounds;		/* in vain */
	bool		is_told;		/* that they were */

	/* the round */
	int			ntried;
	char		tried[SERVERS_ADDRESSES_MAX][SERVERS_ADDRESS_SIZE];
	int			fd;				/* of the connection, -1: there is none */
	int64_t		asked_at;		/* when that was begun; valid if there is one */
	bool		is_asked;		/* the request was sent */
	bool		is_blind;		/* it does not say what the session has seen */
	size_t		length;			/* of the answer so far */
	unsigned char answer[4 + ANSWER_SIZE];
	char		said[512];		/* why there was none, or "" */
};

static void hear_library(void *context, int fd, const void *bytes,
						 size_t length);
static void note_seen(Session *session);
static void look_at_page(Session *session, int64_t now);
static void want(Session *session, const char *servers, const char *tls);
static bool is_same(const char *servers, const char *tls,
					const char *other_servers, const char *other_tls);
static void enter_phase(Move *move, MovePhase phase, int64_t due_at);
static void forget(Move *move);
static void go_on(Session *session, int64_t now);
static void ask_next(Session *session, int64_t now);
static const ServerAddress *find_untried(const Session *session,
										 const ServerAddresses *addresses);
static void pause_round(Session *session, int64_t now);
static void tell_tls(Session *session, int64_t now, const char *why);
static bool ask(Session *session, const ServerAddress *address,
				const ServerAddresses *all, int64_t now);
static bool begin_tls(const char *text, char why[TLS_WHY_SIZE]);
static bool is_proved(const Session *session,
					  const ServerAddresses *addresses);
static void hear(Session *session, int64_t now);
static bool send_request(Session *session);
static void read_answer(Session *session, int64_t now);
static void note_failure(Move *move, const char *format,...)
			__attribute__((format(printf, 2, 3)));
static void hang_up(Move *move);
static void adopt(Session *session, int64_t now, bool is_cut);
static void tell(Session *session, ZkMove outcome, const char *text);

void
move_map_settings(Session *session)
{
	session->settings = settings_page_map(PROTOCOL_SETTINGS_FD);
	close(PROTOCOL_SETTINGS_FD);	/* or nothing; the mapping stays */
}

/* What the page says now is news, unless the session is opened with it. */
void
move_begin(Session *session, const FrameTaken *opening)
{
	Move	   *move = program_need(calloc(1, sizeof(*move)));
	const char *tls = opening->blobs[3];

	move->fd = -1;
	move->follows_page = opening->frame.u.open.follows_page != 0;
	move->servers = program_need(strdup(opening->blobs[0]));
	move->tls = program_need(strdup(tls != NULL ? tls : ""));
	if (session->settings != NULL)
		move->seen = settings_page_state(session->settings) - 1;
	session->move = move;
	tls_overhear(hear_library, session);
}

void
move_take(Session *session, const FrameTaken *taken)
{
	Move	   *move = session->move;

	move->follows_page = taken->frame.u.servers.follows_page != 0;
	want(session, taken->blobs[0],
		 taken->blobs[1] != NULL ? taken->blobs[1] : "");
}

void
move_tick(Session *session, int64_t now)
{
	Move	   *move = session->move;

	if (move == NULL)
		return;
	if (session_is_ending(session))
	{
		forget(move);
		return;
	}
	if (move->follows_page && session->settings != NULL)
		look_at_page(session, now);
	if (move->phase != MOVE_NONE)
		go_on(session, now);
	if (move->phase != MOVE_NONE)
		program_wake_at(session, move->due_at);
}

void
move_poll(const Session *session, struct pollfd polled[MOVE_NPOLLED])
{
	const Move *move = session->move;

	for (int i = 0; i < MOVE_NPOLLED; i++)
		polled[i] = (struct pollfd) {-1, POLLIN, 0};
	if (move == NULL || move->names == NULL)
		return;
	polled[0].fd = names_descriptor(move->names);
	polled[1].fd = move->fd;
	if (!move->is_asked)
		polled[1].events = POLLOUT;
}

void
move_hear(Session *session, const struct pollfd polled[MOVE_NPOLLED])
{
	Move	   *move = session->move;
	int64_t		now = protocol_now();

	if (move == NULL || move->names == NULL)
		return;
	if (polled[0].revents != 0 && names_take(move->names) &&
		move->phase == MOVE_ASKING && move->fd < 0)
		ask_next(session, now);
	else if (polled[1].revents != 0 && polled[1].fd == move->fd)
		hear(session, now);
}

/* ---------------------------------------------------------------------
 * What the session has seen
 * ---------------------------------------------------------------------
 */

/* The library reads each message in parts, as they come. */
static void
hear_library(void *context, int fd, const void *bytes, size_t length)
{
	Session    *session = context;
	const Link *link = &session->link;
	Overheard  *overheard = &session->move->overheard;
	const unsigned char *at = bytes;

	if (fd != link->fd)
		return;
	if (overheard->socket != link->attempt.socket)
	{
		overheard->socket = link->attempt.socket;
		overheard->nmessages = 0;
		overheard->nhead = overheard->left = 0;
	}
	while (length > 0)
	{
		size_t		count = 1;

		if (overheard->nhead < 4)
			overheard->head[overheard->nhead++] = *at;
		else
		{
			if (overheard->nhead < HEAD_SIZE)
				overheard->head[overheard->nhead++] = *at;
			else
				count = overheard->left < length ? overheard->left : length;
			overheard->left -= count;
		}
		if (overheard->nhead == 4)
		{
			uint32_t	word;

			memcpy(&word, overheard->head, 4);
			overheard->left = ntohl(word);
		}
		if (overheard->nhead >= 4 && overheard->left == 0)
			note_seen(session);
		at += count;
		length -= count;
	}
}

/* A message is whole.  The first one is the answer to the request to connect. */
static void
note_seen(Session *session)
{
	Overheard  *overheard = &session->move->overheard;
	uint32_t	words[2];
	int64_t		zxid;

	memcpy(words, overheard->head + 8, sizeof(words));
	zxid = (int64_t) ((uint64_t) ntohl(words[0]) << 32 | ntohl(words[1]));
	if (overheard->nmessages++ > 0 && overheard->nhead == HEAD_SIZE &&
		zxid > session->seen_zxid)
		session->seen_zxid = zxid;
	overheard->nhead = 0;
}

/* ---------------------------------------------------------------------
 * What is wanted
 * ---------------------------------------------------------------------
 */

/* An empty setting names no servers to go to. */
static void
look_at_page(Session *session, int64_t now)
{
	Move	   *move = session->move;
	SettingsRead *settings;
	int64_t		wait_ms;

	if (settings_page_state(session->settings) == move->seen)
		return;
	settings = program_need(malloc(sizeof(*settings)));
	wait_ms = settings_page_read(session->settings, settings, &move->seen);
	if (wait_ms == 0 && settings->servers[0] != '\0')
		want(session, settings->servers, settings->tls);
	else if (wait_ms != 0 && wait_ms != INT64_MAX)
		program_wake_at(session, now + wait_ms);
	free(settings);
}

static void
want(Session *session, const char *servers, const char *tls)
{
	Move	   *move = session->move;
	ServerList	list;
	char		why[SERVERS_WHY_SIZE];
	int			delay_ms = session->status.session_timeout_ms / 10;
	int64_t		due_at = protocol_now();

	if (is_same(servers, tls, move->wanted_servers, move->wanted_tls) ||
		is_same(servers, tls, move->refused_servers, move->refused_tls))
		return;
	if (move->phase == MOVE_CUTTING)
		session_leave(session);
	forget(move);
	free(move->refused_servers);
	free(move->refused_tls);
	move->refused_servers = move->refused_tls = NULL;
	if (is_same(servers, tls, move->servers, move->tls) ||
		!servers_parse(servers, &list, why))
		return;
	move->wanted_servers = program_need(strdup(servers));
	move->wanted_tls = program_need(strdup(tls));
	move->list = list;
	move->nrounds = 0;
	move->is_told = false;
	if (delay_ms > MOVE_DELAY_MS)
		delay_ms = MOVE_DELAY_MS;
	if (session->status.state == ZK_CLIENT_CONNECTED)
		due_at += (int64_t) (drand48() * delay_ms);
	enter_phase(move, MOVE_DELAYED, due_at);
}

/* Of the others there may be none. */
static bool
is_same(const char *servers, const char *tls, const char *other_servers,
		const char *other_tls)
{
	return other_servers != NULL && strcmp(servers, other_servers) == 0 &&
		strcmp(tls, other_tls) == 0;
}

/*
 * The one place where the phase changes.  Something else is wanted from DELAYED
 * to PAUSED, and has become what is used when it is CUTTING.
 */
static void
enter_phase(Move *move, MovePhase phase, int64_t due_at)
{
	assert((move->wanted_servers != NULL) ==
		   (phase != MOVE_NONE && phase != MOVE_CUTTING));
	assert(move->fd < 0 || phase == MOVE_ASKING);
	move->phase = phase;
	move->due_at = due_at;
}

/* Nothing else is wanted any more. */
static void
forget(Move *move)
{
	hang_up(move);
	if (move->names != NULL)
		names_end(move->names);
	free(move->wanted_servers);
	free(move->wanted_tls);
	move->names = NULL;
	move->wanted_servers = move->wanted_tls = NULL;
	enter_phase(move, MOVE_NONE, 0);
}

/* ---------------------------------------------------------------------
 * The way there
 * ---------------------------------------------------------------------
 */

/* Do what is due. */
static void
go_on(Session *session, int64_t now)
{
	Move	   *move = session->move;

	if (move->phase == MOVE_CUTTING &&
		(session->traffic.npending == 0 || !session->link.is_up ||
		 now >= move->due_at))
	{
		session_leave(session);
		enter_phase(move, MOVE_NONE, 0);
	}
	if (move->phase == MOVE_NONE || move->phase == MOVE_CUTTING ||
		now < move->due_at)
		return;
	if (!session->status.was_connected)
	{
		adopt(session, now, true);
		return;
	}
	if (move->phase == MOVE_ASKING && move->fd >= 0)
	{
		note_failure(move, "Server \"%s\" did not answer",
					 move->tried[move->ntried - 1]);
		hang_up(move);
	}
	else
	{
		/* a new round */
		if (move->names == NULL)
			move->names = names_begin(&move->list);
		names_look_up(move->names);
		move->ntried = 0;
		move->said[0] = '\0';
	}
	ask_next(session, now);
}

/* Ask an address that was not asked in this round, or wait for one. */
static void
ask_next(Session *session, int64_t now)
{
	Move	   *move = session->move;
	ServerAddresses *addresses = program_need(malloc(sizeof(*addresses)));
	const ServerAddress *address;
	int64_t		answer_ms = (int64_t) ANSWER_MIN_MS * (1 + move->nrounds);
	bool		is_asking = false;

	enter_phase(move, MOVE_ASKING, move->due_at);
	if (!names_collect(move->names, addresses))
		note_failure(move, "%s", addresses->complaint);
	else if (is_proved(session, addresses))
	{
		free(addresses);
		adopt(session, now, false);
		return;
	}

	/* where TLS cannot be had, it cannot with any of them */
	while (!is_asking && move->phase == MOVE_ASKING &&
		   (address = find_untried(session, addresses)) != NULL)
	{
		strcpy(move->tried[move->ntried++], address->text);
		is_asking = ask(session, address, addresses, now);
	}
	free(addresses);
	if (move->phase != MOVE_ASKING)
		return;
	if (session->status.state == ZK_CLIENT_SUSPENDED)
		answer_ms = (session->early_deadline - now) / 4;
	if (answer_ms > ANSWER_MAX_MS)
		answer_ms = ANSWER_MAX_MS;
	if (answer_ms < PAUSE_SUSPENDED_MS)
		answer_ms = PAUSE_SUSPENDED_MS;
	move->due_at = now + answer_ms;
	if (is_asking || names_awaited_since(move->names) != INT64_MAX)
		return;
	pause_round(session, now);
	if (move->nrounds >= SILENT_ROUNDS && !move->is_told)
		tell(session, ZK_MOVE_SILENT, move->said);
	move->is_told |= move->nrounds >= SILENT_ROUNDS;
}

/* One that was not asked in this round; NULL if there is none. */
static const ServerAddress *
find_untried(const Session *session, const ServerAddresses *addresses)
{
	const Move *move = session->move;
	unsigned	first = session->open.first_server;

	if (move->ntried == SERVERS_ADDRESSES_MAX)
		return NULL;
	for (int i = 0; i < addresses->count; i++)
	{
		const ServerAddress *address =
			&addresses->all[(first + (unsigned) i) % (unsigned) addresses->count];
		int			tried = 0;

		while (tried < move->ntried &&
			   strcmp(move->tried[tried], address->text) != 0)
			tried++;
		if (tried == move->ntried)
			return address;
	}
	return NULL;
}

/* Nobody has answered: all are asked again, after a while. */
static void
pause_round(Session *session, int64_t now)
{
	Move	   *move = session->move;
	int64_t		pause_ms;

	if (session->status.state == ZK_CLIENT_SUSPENDED)
		pause_ms = program_pause_ms(PAUSE_SUSPENDED_MS, 0, PAUSE_SUSPENDED_MS);
	else
		pause_ms = program_pause_ms(PAUSE_MIN_MS, move->nrounds, PAUSE_MAX_MS);
	enter_phase(move, MOVE_PAUSED, now + pause_ms);
	move->nrounds++;
}

/*
 * TLS cannot be had.  The files may be mended without any change of the
 * settings, so it is tried again.
 */
static void
tell_tls(Session *session, int64_t now, const char *why)
{
	Move	   *move = session->move;

	hang_up(move);
	if (!move->is_told)
		tell(session, ZK_MOVE_TLS, why);
	move->is_told = true;
	pause_round(session, now);
}

/*
 * Is it no risk to use these?  While there is a connection that is asked of
 * its server.
 */
static bool
is_proved(const Session *session, const ServerAddresses *addresses)
{
	const Move *move = session->move;
	bool		is_shared = false;

	if (strcmp(move->tls, move->wanted_tls) != 0)
		return false;
	if (session->status.state == ZK_CLIENT_CONNECTED)
		return servers_contain(addresses, session->server);
	for (int i = 0; i < addresses->count && !is_shared; i++)
		is_shared = servers_contain(&session->addresses,
									addresses->all[i].text);
	return is_shared;
}

/* Connect to it, as the wanted settings say; false if that has failed. */
static bool
ask(Session *session, const ServerAddress *address, const ServerAddresses *all,
	int64_t now)
{
	Move	   *move = session->move;
	char		why[TLS_WHY_SIZE];
	bool		is_other_tls = strcmp(move->tls, move->wanted_tls) != 0;
	int			rc = -1;
	int			error;

	move->asked_at = now;
	move->is_asked = false;
	move->length = 0;
	move->fd = socket(address->address.ss_family,
					  SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (move->fd < 0)
	{
		note_failure(move, "%s", strerror(errno));
		return false;
	}

	/* the library's connections are to be as they were, as long as it can be */
	if (is_other_tls && !begin_tls(move->wanted_tls, why))
	{
		tell_tls(session, now, why);
		return false;
	}
	tls_expect(&move->list, all->all, all->count);
	rc = connect(move->fd, (const struct sockaddr *) &address->address,
				 address->length);
	error = errno;
	if (is_other_tls)
		(void) begin_tls(move->tls, why);	/* the one before: it can */
	tls_expect(names_list(session->names), session->addresses.all,
			   session->addresses.count);
	if (rc == 0 || error == EINPROGRESS)
		return true;
	note_failure(move, "Server \"%s\" cannot be reached: %s", address->text,
				 strerror(error));
	hang_up(move);
	return false;
}

/* Connections that are made from now on are to be so. */
static bool
begin_tls(const char *text, char why[TLS_WHY_SIZE])
{
	if (text[0] != '\0')
		return tls_begin(text, why);
	tls_end();
	return true;
}

/* ---------------------------------------------------------------------
 * The proof
 * ---------------------------------------------------------------------
 */

/* Something has happened to the connection. */
static void
hear(Session *session, int64_t now)
{
	Move	   *move = session->move;
	const char *server = move->tried[move->ntried - 1];
	int			error = 0;
	socklen_t	size = sizeof(error);
	ssize_t		received;
	bool		ask_blindly = false;

	if (!move->is_asked)
	{
		getsockopt(move->fd, SOL_SOCKET, SO_ERROR, &error, &size);
		move->is_asked = error == 0 && send_request(session);
		if (move->is_asked)
			return;
		note_failure(move, "Server \"%s\" cannot be reached: %s", server,
					 strerror(error != 0 ? error : EPIPE));
	}
	else
	{
		received = recv(move->fd, move->answer + move->length,
						sizeof(move->answer) - move->length, MSG_DONTWAIT);
		if (received < 0 && (errno == EINTR || errno == EAGAIN))
			return;
		if (received > 0)
			move->length += (size_t) received;
		if (move->length == sizeof(move->answer))
		{
			read_answer(session, now);
			return;
		}
		if (received > 0)
			return;
		if (tls_error(move->fd)[0] != '\0')
			note_failure(move, "%s", tls_error(move->fd));
		else
			note_failure(move, "Server \"%s\" closed the connection", server);
		ask_blindly = received == 0 && move->length == 0 && !move->is_blind &&
			tls_error(move->fd)[0] == '\0' && session->seen_zxid != 0;
	}
	hang_up(move);
	if (ask_blindly)
	{
		move->ntried--;			/* the same server again */
		move->is_blind = true;
	}
	ask_next(session, now);
}

/*
 * The request of a client that has a session: its length, the version of the
 * protocol (0), the last change that it has seen, the timeout, the session's
 * id, the length of its password, that, and that the client wants no server
 * that is read-only.  false if it could not be sent.
 */
static bool
send_request(Session *session)
{
	const SessionTicket *ticket = &session->status.ticket;
	int64_t		zxid = session->move->is_blind ? 0 : session->seen_zxid;
	uint64_t	seen = (uint64_t) zxid;
	uint64_t	id = (uint64_t) ticket->session_id;
	const uint32_t words[] = {
		htonl(REQUEST_SIZE), htonl(0),
		htonl((uint32_t) (seen >> 32)), htonl((uint32_t) seen),
		htonl((uint32_t) session->status.session_timeout_ms),
		htonl((uint32_t) (id >> 32)), htonl((uint32_t) id),
		htonl(sizeof(ticket->password))
	};
	unsigned char request[4 + REQUEST_SIZE] = {0};

	memcpy(request, words, sizeof(words));
	memcpy(request + sizeof(words), ticket->password,
		   sizeof(ticket->password));
	return send(session->move->fd, request, sizeof(request),
				MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t) sizeof(request);
}

/*
 * The answer: its length, the version of the protocol, the timeout, which is 0
 * if there is no such session, and the session's id.
 */
static void
read_answer(Session *session, int64_t now)
{
	Move	   *move = session->move;
	const char *server = move->tried[move->ntried - 1];
	uint32_t	words[5];
	int64_t		id;
	int			timeout;
	bool		was_blind = move->is_blind;
	char		rest[64];

	for (int i = 0; i < 5; i++)
	{
		memcpy(&words[i], move->answer + 4 * i, 4);
		words[i] = ntohl(words[i]);
	}
	timeout = (int) words[2];
	id = (int64_t) ((uint64_t) words[3] << 32 | words[4]);

	/* what is left unread makes the kernel reset the connection: no harm */
	(void) recv(move->fd, rest, sizeof(rest), MSG_DONTWAIT);
	hang_up(move);
	if (words[0] < ANSWER_SIZE || words[0] > 1000 || timeout < 0 ||
		(timeout > 0 && id != session->status.ticket.session_id))
	{
		note_failure(move, "What answers at \"%s\" is not ZooKeeper", server);
		ask_next(session, now);
	}
	else if (timeout == 0)
	{
		tell(session, ZK_MOVE_UNKNOWN, server);
		move->refused_servers = move->wanted_servers;
		move->refused_tls = move->wanted_tls;
		move->wanted_servers = move->wanted_tls = NULL;
		forget(move);
	}
	else if (was_blind)
	{
		note_failure(move, "Server \"%s\" has not seen all that the session has seen",
					 server);
		ask_next(session, now);
	}
	else
	{
		session_shorten(session, timeout, move->asked_at);
		adopt(session, now, true);
	}
}

static void
note_failure(Move *move, const char *format,...)
{
	va_list		args;

	va_start(args, format);
	vsnprintf(move->said, sizeof(move->said), format, args);
	va_end(args);
}

/* Close the connection that proves, without a word. */
static void
hang_up(Move *move)
{
	if (move->fd >= 0)
		close(move->fd);
	move->fd = -1;
	move->is_blind = false;
}

/* ---------------------------------------------------------------------
 * The move
 * ---------------------------------------------------------------------
 */

/*
 * What was wanted is what is used from now on: by the next connection, and if
 * is_cut that is to be made soon.
 */
static void
adopt(Session *session, int64_t now, bool is_cut)
{
	Move	   *move = session->move;
	char		why[TLS_WHY_SIZE];

	if (strcmp(move->tls, move->wanted_tls) != 0 &&
		!begin_tls(move->wanted_tls, why))
	{
		tell_tls(session, now, why);
		return;
	}
	free(move->servers);
	free(move->tls);
	move->servers = move->wanted_servers;
	move->tls = move->wanted_tls;
	move->wanted_servers = move->wanted_tls = NULL;
	if (move->names == NULL)
	{
		move->names = names_begin(&move->list);
		names_look_up(move->names);
	}
	session_adopt(session, move->names);
	move->names = NULL;
	forget(move);
	tell(session, ZK_MOVE_DONE, session->server);
	if (!is_cut)
		return;
	enter_phase(move, MOVE_CUTTING, now + CUT_MS);
	go_on(session, now);
}

static void
tell(Session *session, ZkMove outcome, const char *text)
{
	const Move *move = session->move;
	const Frame frame = {.kind = FRAME_MOVE,.u.move.outcome = outcome};
	const FrameBlob blobs[FRAME_NBLOBS] = {
		frame_text(text), frame_text(move->servers),
		frame_text(move->tls[0] != '\0' ? move->tls : NULL)
	};

	backend_note(session, "other servers: %s: %s", outcome_words[outcome], text);
	backend_put(session, &frame, blobs, true);
}
