/*-------------------------------------------------------------------------
 *
 * fuzz_session.c
 *	  client.c and the session's program against a ZooKeeper server that lies.
 *
 * Sessions come and go, a few at a time, with every request there is.  The
 * promise under test: a server that lies costs a session and nothing else.
 * This process survives, no call takes longer than it may, each request that was
 * made is over once the server is honest again or the session is lost, and no
 * program is left, not even a zombie.
 *
 * The program may end by a fault in the ZooKeeper library.  Whether that is so, or
 * whether it was in our code, is in the reports of the sanitizers.
 *
 * Started by fuzz_session.pl, whose word it takes: it prints "lie" and "honest"
 * when the server is to begin with one or the other, and goes on with the answer;
 * "stop" for an answer ends it.  "broken: ..." on a line is a failure.
 *
 *	fuzz_session SERVERS PROGRAM SEED
 *
 *-------------------------------------------------------------------------
 */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client.h"
#include "protocol.h"

/*
 * Sessions at one time, and requests of each of them.  client.c reaps sixteen
 * programs at most: those of now, those that end, and those of the round before.
 */
#define NCLIENTS 5
#define NREQUESTS 64

/* Short, so that what waits for its end does not take long. */
#define SESSION_TIMEOUT_MS 1000

/* For how long the server lies, at most, before its sessions are looked at. */
#define LIES_MS 400

/* And if nobody says anything, so that each session sends heartbeats. */
#define SILENT_LIES_MS 1000

/*
 * How long a session may take to settle or to be lost with an honest server, and
 * a program to end: some session timeouts, and a busy machine.
 */
#define PATIENCE_MS (4 * SESSION_TIMEOUT_MS + 60000)

/* How long a call may take that does not wait, on a busy machine. */
#define CALL_MS 5000

typedef struct Player
{
	ZkClient   *client;
	ZkRequest  *requests[NREQUESTS];	/* NULL: a free place */
	bool		can_be_withdrawn[NREQUESTS];
	uint32_t	generation;		/* of the latest lock that may be kept */
	enum {NOT_KEPT, IS_KEPT, IS_TAKEN} keeping[4];
	int			nleft;			/* requests still to be made */
	int64_t		next_at;		/* when to go on without answers */
} Player;

static Player players[NCLIENTS];
static const char *servers;
static const char *program;
static uint64_t seed;
static int	nsessions;
static int	nrequests;

/* Sum of all that was read of replies, so that the sanitizer sees it read. */
static volatile unsigned checksum;

static uint32_t
choose(uint32_t limit)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (uint32_t) (seed >> 32) % limit;
}

static void __attribute__((format(printf, 1, 2)))
broken(const char *format,...)
{
	va_list		args;

	printf("broken: ");
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
	fflush(stdout);
}

/* Let the server begin with that; false if it is time to stop. */
static bool
tell(const char *what)
{
	char		answer[32];

	printf("%s\n", what);
	fflush(stdout);
	return fgets(answer, sizeof(answer), stdin) != NULL &&
		strncmp(answer, "stop", 4) != 0;
}

/* Did what began then take longer than it may? */
static void
check_time(int64_t since, int64_t most, const char *what)
{
	int64_t		took = protocol_now() - since;

	if (took > most)
		broken("%s took %lld ms", what, (long long) took);
}

/* ---------------------------------------------------------------------
 * What a session does
 * ---------------------------------------------------------------------
 */

static void
open_session(Player *player)
{
	static const char *const credentials[] = {"zklock:a", "zklock:b"};
	bool		has_auth = choose(2) == 0;
	bool		is_private = choose(2) == 0;
	int64_t		since = protocol_now();

	memset(player, 0, sizeof(*player));
	player->client = zklock_client_open(&(ZkClientOptions) {
		.program = program,
		.servers = servers,
		.session_timeout_ms = SESSION_TIMEOUT_MS,
		.first_server = choose(4),
		.auth_scheme = has_auth ? "digest" : NULL,
		.auth_credentials = has_auth ? credentials[choose(2)] : NULL,
		.is_auth_private = has_auth && is_private
	});
	if (player->client == NULL)
		abort();
	player->nleft = (int) choose(6 * NREQUESTS);
	nsessions++;
	check_time(since, CALL_MS, "open");
}

/* One of a few nodes, which others know, too. */
static const char *
some_node(void)
{
	static char paths[4][32];
	static unsigned next;
	char	   *path = paths[next++ % 4];

	snprintf(path, sizeof(paths[0]), "/fuzz/n%u", choose(4));
	return path;
}

/* Keep a lock, take it back, and so on. */
static void
keep_something(Player *player)
{
	int			i = (int) choose(4);
	uint32_t	generation = player->generation > 1 ?
		player->generation - choose(2) : player->generation;
	ZkClient   *client = player->client;
	KeptLock   *kept = zklock_client_kept(client);
	int			keep_ms = 1 + (int) choose(100);
	int64_t		now = protocol_now();
	const char *nodes[] = {
		"/fuzz/queue/_c_0f8fad5b-lock-0000000001", "/fuzz/n1", "/fuzz/n2/n", "/n"
	};

	if (kept == NULL)
		return;
	kept += i;
	switch (player->keeping[i])
	{
		case NOT_KEPT:
			keep_state_begin(kept, ++player->generation, keep_ms, now);
			zklock_client_tell_kept(client, i, player->generation,
									nodes[choose(4)], "{}");
			player->keeping[i] = IS_TAKEN;
			break;
		case IS_KEPT:
			player->keeping[i] = keep_state_take(kept, generation) ?
				IS_TAKEN : NOT_KEPT;
			break;
		case IS_TAKEN:
			player->keeping[i] = NOT_KEPT;
			if (choose(4) == 0)
				keep_state_end(kept);
			else if (keep_state_put(kept, generation, now))
				player->keeping[i] = IS_KEPT;
			break;
	}
}

/* Do one thing of all that there are, with a request if there is room. */
static void
do_something(Player *player)
{
	static char data[5001];		/* of length; data[length] ends it */
	ZkClient   *client = player->client;
	ZkRequest  *request = NULL;
	bool		can_be_withdrawn = false;
	const char *watched;
	uint32_t	place = choose(NREQUESTS);
	int			length = choose(20) == 0 ? (int) sizeof(data) - 1 : (int) choose(10);

	memset(data, 'd', sizeof(data));
	data[length] = '\0';
	nrequests++;
	if (player->requests[place] != NULL)
	{
		if (player->can_be_withdrawn[place] && choose(2))
			zklock_client_withdraw(player->requests[place]);
		else
			zklock_client_free(player->requests[place]);
		player->requests[place] = NULL;
	}
	switch (choose(26))
	{
		case 0:
		case 1:
		case 2:
			request = zklock_client_create(client, "/fuzz/queue/_c_0f8fad5b-lock-",
										   ZK_EPHEMERAL_SEQUENTIAL, data);
			can_be_withdrawn = true;
			zklock_client_free(zklock_client_read(client, ZK_LIST,
												  "/fuzz/queue"));
			break;
		case 3:
			request = zklock_client_create(client, some_node(), ZK_EPHEMERAL,
										   data);
			can_be_withdrawn = true;
			break;
		case 4:
			request = zklock_client_create(client, choose(2) ? "/fuzz" : "/fuzz/queue",
										   choose(2) ? ZK_CONTAINER : ZK_PERSISTENT, NULL);
			break;
		case 5:
		case 6:
			request = zklock_client_read(client, ZK_LIST, "/fuzz/queue");
			break;
		case 7:
			request = zklock_client_read(client, ZK_LIST_AND_WATCH, "/fuzz");
			if (choose(4) == 0)
				zklock_client_unwatch(client);
			break;
		case 8:
			request = zklock_client_read(client, ZK_GET, some_node());
			break;
		case 9:
			watched = some_node();

			/* so that there is something to watch, and to delete */
			if (choose(2))
				zklock_client_free(zklock_client_create(client, watched,
														ZK_EPHEMERAL, "data"));
			request = zklock_client_read(client, ZK_GET_AND_WATCH, watched);
			if (choose(2))
				zklock_client_delete(client, watched, ZK_ANY_VERSION);
			else if (choose(2))
				zklock_client_unwatch(client);
			break;
		case 10:
			request = zklock_client_check(client, "/fuzz/queue", choose(3));
			break;
		case 11:
			request = zklock_client_check(client, choose(2) ? "/fuzz" : some_node(), choose(3));
			break;
		case 12:
			request = zklock_client_set(client, some_node(), data,
										choose(2) ? ZK_ANY_VERSION : 0);
			break;
		case 13:
			request = zklock_client_remove(client, some_node(), ZK_ANY_VERSION);
			break;
		case 14:
		case 15:
			request = zklock_client_move(client, &(ZkMove) {
				.from = some_node(), .to = some_node(), .data = data,
				.kind = choose(2) ? ZK_PERSISTENT : ZK_PERSISTENT_OWN,
				.set = choose(2) ? some_node() : NULL, .set_data = data
			});
			break;
		case 16:
		case 17:
			zklock_client_announce(client, some_node(), data);
			break;
		case 18:
			zklock_client_leave(client, some_node(), "lock", 1, choose(2));
			zklock_client_free(zklock_client_take_gone(client));
			break;
		case 19:
		case 20:
			zklock_client_delete(client, some_node(), ZK_ANY_VERSION);
			break;
		case 21:
			zklock_client_interrupt_on_loss(client, choose(2));
			break;
		case 22:
			request = zklock_client_read(client, ZK_GET_ACL, choose(2) ? "/fuzz/queue" :
											some_node());
			break;
		case 23:
			{
				const char *paths[] = {some_node(), some_node(), "/fuzz/queue"};

				if (choose(2))
					request = zklock_client_create_guarded(client, some_node(), "/fuzz",
														   choose(100), data);
				else
					request = zklock_client_remove_guarded(client, "/fuzz",
														   choose(100), paths,
														   1 + choose(3), choose(3) - 1);
				break;
			}
		case 24:
		case 25:
			keep_something(player);
			break;
	}
	player->requests[place] = request;
	player->can_be_withdrawn[place] = can_be_withdrawn;
}

static void
read_text(const char *text)
{
	if (text != NULL)
		checksum += (unsigned) strlen(text);
}

/* Read all that a reply says. */
static void
read_reply(const ZkReply *reply)
{
	read_text(reply->path);
	read_text(reply->code_text);
	for (int i = 0; i < reply->nchildren; i++)
		read_text(reply->children[i]);
	for (int i = 0; i < reply->data_length; i++)
		checksum += (unsigned char) reply->data[i];
}

/* Look at the session: what is asked after that is answered by what was there. */
static ZkClientStatus
look_at(ZkClient *client)
{
	zklock_client_poll(client);
	return *zklock_client_status(client);
}

/* Look at every request; how many have no answer yet? */
static int
read_replies(Player *player)
{
	int			nopen = 0;

	for (int i = 0; i < NREQUESTS; i++)
	{
		const ZkReply *reply;

		if (player->requests[i] == NULL)
			continue;
		reply = zklock_client_reply(player->requests[i]);
		if (reply != NULL)
			read_reply(reply);
		else
			nopen++;
	}
	return nopen;
}

/* Is there nothing to wait for any more? */
static bool
has_settled(Player *player)
{
	ZkClientStatus status = look_at(player->client);

	if (status.state == ZK_CLIENT_LOST)
		return true;
	/*
	 * A server that lied about the path of a node made us delete another
	 * one's: that is refused by an honest server, and repeated.
	 */
	return zklock_client_count_pending(player->client) <= status.nrefused && status.nput_off == 0 &&
		zklock_client_is_undone(player->client) && read_replies(player) == 0;
}

/* Wait for news of anybody, but not for long. */
static void
wait_for_news(void)
{
	struct pollfd polled[NCLIENTS];

	for (int i = 0; i < NCLIENTS; i++)
	{
		ZkClientStatus status;

		/* one that is over is readable for ever */
		status = look_at(players[i].client);
		zklock_client_flush(players[i].client);
		polled[i].fd = status.state == ZK_CLIENT_LOST ? -1 :
			zklock_client_fd(players[i].client);
		polled[i].events = POLLIN;
	}
	poll(polled, NCLIENTS, 5);
	for (int i = 0; i < NCLIENTS; i++)
		zklock_client_receive(players[i].client);
}

/*
 * All of them go on as long as they have something left to do and a session; and
 * if they are silent, while there is a session.
 */
static void
play(int64_t until, bool is_silent)
{
	bool		is_over = false;

	while (!is_over && protocol_now() < until)
	{
		is_over = true;
		for (int i = 0; i < NCLIENTS; i++)
		{
			Player	   *player = &players[i];
			int64_t		now = protocol_now();
			ZkClientStatus status;

			status = look_at(player->client);
			is_over &= (player->nleft == 0 && !is_silent) ||
				status.state == ZK_CLIENT_LOST;
			if (player->nleft == 0 ||
				(read_replies(player) > 0 && now < player->next_at))
				continue;
			zklock_client_begin_many(player->client);
			for (uint32_t burst = 1 + choose(12); burst > 0 && player->nleft > 0;
				 burst--, player->nleft--)
				do_something(player);
			zklock_client_end_many(player->client);
			player->next_at = now + 30;
			check_time(now, CALL_MS, "a burst of requests");
		}
		wait_for_news();
	}
}

/* ---------------------------------------------------------------------
 * The end of sessions
 * ---------------------------------------------------------------------
 */

/* The state of a child as in /proc, 0 if that process is no child of ours. */
static char
child_state(const char *pid)
{
	char		path[300];
	char		line[512];
	char	   *rest;
	size_t		length;
	FILE	   *file;

	snprintf(path, sizeof(path), "/proc/%s/stat", pid);
	file = fopen(path, "re");
	if (file == NULL)
		return 0;
	length = fread(line, 1, sizeof(line) - 1, file);
	fclose(file);
	line[length] = '\0';
	rest = strrchr(line, ')');
	return rest != NULL && atoi(rest + 4) == getpid() ? rest[2] : 0;
}

/* How many children there are, and how many of them are zombies. */
static int
count_children(int *nzombies)
{
	DIR		   *directory = opendir("/proc");
	struct dirent *entry;
	int			count = 0;

	*nzombies = 0;
	while ((entry = readdir(directory)) != NULL)
	{
		char		state = entry->d_name[0] >= '1' && entry->d_name[0] <= '9' ?
			child_state(entry->d_name) : 0;

		count += state != 0;
		*nzombies += state == 'Z';
	}
	closedir(directory);
	return count;
}

/* Wait until no more than so many programs are left. */
static void
await_programs(int most)
{
	int64_t		deadline = protocol_now() + PATIENCE_MS;
	int			nzombies;
	int			count;

	while ((count = count_children(&nzombies)) > most &&
		   protocol_now() < deadline)
		poll(NULL, 0, 10);
	if (count > most)
		broken("%d programs are left, %d of them zombies", count, nzombies);
}

static void
close_session(Player *player)
{
	int			wait_ms = choose(2) ? 0 : (int) choose(300);
	int64_t		since = protocol_now();
	char		error[512];

	snprintf(error, sizeof(error), "%s", zklock_client_last_error(player->client));
	read_text(error);
	zklock_client_close(player->client, wait_ms);
	player->client = NULL;
	check_time(since, wait_ms + CALL_MS, "close");
}

/* With an honest server, all that was asked is over, or the session is. */
static void
settle(void)
{
	int64_t		deadline = protocol_now() + PATIENCE_MS;
	bool		is_over = false;

	while (!is_over && protocol_now() < deadline)
	{
		is_over = true;
		for (int i = 0; i < NCLIENTS; i++)
			is_over &= has_settled(&players[i]);
		if (!is_over)
			wait_for_news();
	}
	for (int i = 0; i < NCLIENTS && !is_over; i++)
	{
		ZkClientStatus status;

		if (has_settled(&players[i]))
			continue;
		status = look_at(players[i].client);
		broken("a session in state %d waits for %d requests, %d refused%s, %d answers",
			   (int) status.state, zklock_client_count_pending(players[i].client), status.nrefused,
			   zklock_client_is_undone(players[i].client) ? "" : ", some withdrawn",
			   read_replies(&players[i]));
	}
}

/* Some sessions at one time; false if it was the last time. */
static bool
play_round(void)
{
	bool		is_silent = choose(6) == 0;
	bool		closes_early;

	if (!tell("lie"))
		return false;
	for (int i = 0; i < NCLIENTS; i++)
	{
		open_session(&players[i]);
		if (is_silent)
			players[i].nleft = 0;
	}
	play(protocol_now() +
		 (is_silent ? SILENT_LIES_MS : 50 + choose(LIES_MS)), is_silent);

	/* at times they end among lies */
	closes_early = choose(4) == 0;
	if (!closes_early)
	{
		if (!tell("honest"))
			broken("the server does not become honest");
		settle();
	}
	for (int i = 0; i < NCLIENTS; i++)
		close_session(&players[i]);
	await_programs(NCLIENTS);
	return true;
}

static void
ignore_signal(int number)
{
	(void) number;
}

int
main(int argc, char **argv)
{
	struct sigaction action = {
		.sa_handler = ignore_signal,
		.sa_flags = SA_RESTART
	};

	if (argc != 4)
	{
		fprintf(stderr, "usage: fuzz_session SERVERS PROGRAM SEED\n");
		return 2;
	}
	servers = argv[1];
	program = argv[2];
	seed = strtoull(argv[3], NULL, 10) * 2654435761U + 1;
	sigaction(SIGINT, &action, NULL);
	while (play_round())
		;
	tell("honest");
	await_programs(0);
	printf("sessions %d requests %d\n", nsessions, nrequests);
	return 0;
}
