/*-------------------------------------------------------------------------
 *
 * test_client.c
 *	  client.c and the session's program keep their promises to a caller against a
 *	  real ZooKeeper server, without PostgreSQL: results, proofs, watches, and the
 *	  end of a session whose program is killed or stopped.
 *
 * Exists so that both ends of the channel run under AddressSanitizer, with a look
 * for leaks, which a PostgreSQL server does not bear, and so that the program can
 * be killed and stopped where a backend would hide what comes of it.  The
 * server's address is in the environment variable ZKLOCK_TEST_SERVERS; the program, built with the same
 * sanitizers, lies beside this one.  All znodes are made below a path of this
 * process and removed at the end.
 *
 *-------------------------------------------------------------------------
 */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "channel.h"
#include "client.h"
#include "fake_server.h"
#include "protocol.h"
#include "tap.h"

#define SESSION_TIMEOUT_MS 10000

/* Longest wait for anything a healthy server does. */
#define PATIENCE_MS 120000

static const char *servers;
static char top[64];			/* parent of all nodes of this run */

/* Every client that is open, so that news of any of them is noticed. */
#define CLIENTS_MAX 32
static ZkClient *clients[CLIENTS_MAX];

/* Look at the session: what is asked after that is answered by what was there. */
static ZkClientStatus
look_at(ZkClient *client)
{
	zklock_client_poll(client);
	return *zklock_client_status(client);
}

/*
 * Wait for news, or a moment for what comes without; false when the deadline
 * has passed.
 */
static bool
wait_for_news(int64_t deadline)
{
	struct pollfd polled[CLIENTS_MAX];

	if (protocol_now() >= deadline)
		return false;
	for (int i = 0; i < CLIENTS_MAX; i++)
	{
		polled[i].fd = -1;
		if (clients[i] == NULL)
			continue;
		zklock_client_flush(clients[i]);
		polled[i].fd = zklock_client_fd(clients[i]);
		polled[i].events = POLLIN;
	}
	poll(polled, CLIENTS_MAX, 50);
	for (int i = 0; i < CLIENTS_MAX; i++)
		if (clients[i] != NULL)
			zklock_client_receive(clients[i]);
	return true;
}

/* The program, beside this one. */
static const char *
program_path(void)
{
	static char path[PATH_MAX];
	ssize_t		length = readlink("/proc/self/exe", path,
								  sizeof(path) - sizeof("zklock-session"));

	path[length > 0 ? length : 0] = '\0';
	strcpy(strrchr(path, '/') + 1, "zklock-session");
	return path;
}

static ZkClient *
open_with(ZkClientOptions options)
{
	int			i = 0;

	options.program = options.program != NULL ? options.program : program_path();
	options.session_timeout_ms = SESSION_TIMEOUT_MS;
	while (clients[i] != NULL)
		i++;
	clients[i] = zklock_client_open(&options);
	return clients[i];
}

/*
 * A program that the close waits for is killed as soon as its session is over; left alone
 * it looks for leaks, and ends then.
 */
static void
close_client(ZkClient *client)
{
	int64_t		deadline = protocol_now() + PATIENCE_MS;
	ZkClientStatus status;

	for (int i = 0; i < CLIENTS_MAX; i++)
		if (clients[i] == client)
			clients[i] = NULL;
	status = look_at(client);
	zklock_client_close(client, 0);
	while (status.program_pid > 0 && kill(status.program_pid, 0) == 0 &&
		   protocol_now() < deadline)
		poll(NULL, 0, 10);
}

static ZkClient *
open_client(const char *text)
{
	return open_with((ZkClientOptions) {.servers = text});
}

/* Wait until the client is in the state, or lost. */
static ZkClientStatus
await_state(ZkClient *client, ZkClientState state)
{
	int64_t		deadline = protocol_now() + PATIENCE_MS;
	ZkClientStatus status;

	do
		status = look_at(client);
	while (status.state != state && status.state != ZK_CLIENT_LOST &&
		   wait_for_news(deadline));
	return status;
}

static ZkClient *
open_connected(void)
{
	ZkClient   *client = open_client(servers);

	await_state(client, ZK_CLIENT_CONNECTED);
	return client;
}

/* The reply to a request; NULL after PATIENCE_MS. */
static const ZkReply *
await_reply(ZkRequest *request)
{
	int64_t		deadline = protocol_now() + PATIENCE_MS;
	const ZkReply *reply;

	while ((reply = zklock_client_reply(request)) == NULL &&
		   wait_for_news(deadline))
		;
	return reply;
}

static ZkResult
result_of(ZkRequest *request)
{
	const ZkReply *reply = await_reply(request);
	ZkResult	result = reply != NULL ? reply->result : ZK_FAILED;

	zklock_client_free(request);
	return result;
}

/* How many children the path has; -1 if it cannot be read. */
static int
count_children(ZkClient *client, const char *path)
{
	ZkRequest  *request = zklock_client_read(client, ZK_LIST, path);
	const ZkReply *reply = await_reply(request);
	int			count = reply != NULL && reply->result == ZK_OK ?
		reply->nchildren : -1;

	zklock_client_free(request);
	return count;
}

/* Wait until the path has that many children; the last count. */
static int
await_children(ZkClient *client, const char *path, int expected)
{
	int64_t		deadline = protocol_now() + PATIENCE_MS;
	int			count;

	while ((count = count_children(client, path)) != expected &&
		   protocol_now() < deadline)
		;
	return count;
}

static void
make_parent(ZkClient *client, char *path, size_t size, const char *name)
{
	snprintf(path, size, "%s/%s", top, name);
	is_int(ZK_OK, result_of(zklock_client_create(client, path, ZK_PERSISTENT,
												 NULL)),
		   "parent %s is made", name);
}

/*
 * Wait until no request is outstanding; is that so?  The answer to a delete
 * wakes nobody, so it is looked for now and then.
 */
static bool
await_silence(ZkClient *client)
{
	int64_t		deadline = protocol_now() + PATIENCE_MS;

	do
		(void) look_at(client);
	while (zklock_client_count_pending(client) > 0 && protocol_now() < deadline &&
		   poll(NULL, 0, 2) == 0);
	return zklock_client_count_pending(client) == 0;
}

static void
remove_node(ZkClient *client, const char *path)
{
	zklock_client_delete(client, path, ZK_ANY_VERSION);
	await_silence(client);
}

/* A queue node from its making to its end, through every kind of request. */
static void
test_requests(ZkClient *client)
{
	char		parent[80];
	char		prefix[128];
	char		node[160];
	ZkClientStatus status;
	ZkRequest  *create;
	ZkRequest  *list;
	ZkRequest  *get;
	const ZkReply *reply;

	make_parent(client, parent, sizeof(parent), "requests");
	snprintf(prefix, sizeof(prefix), "%s/q-", parent);
	create = zklock_client_create(client, prefix, ZK_EPHEMERAL_SEQUENTIAL,
								  "who");
	list = zklock_client_read(client, ZK_LIST, parent);
	reply = await_reply(list);
	is_int(1, reply->nchildren, "a list behind a create shows the node");
	is_str("q-0000000000", reply->children[0], "its name has the number");
	reply = zklock_client_reply(create);
	ok(reply != NULL && reply->result == ZK_OK,
	   "the create is answered before the list");
	snprintf(node, sizeof(node), "%s", reply->path);
	status = look_at(client);
	ok(reply->czxid > 0 && reply->ephemeral_owner == status.session_id,
	   "token and owner come with the create");
	ok(reply->proof.boot_ms > 0 && reply->proof.wall_ms > 0 &&
	   reply->proof.boot_ms <= protocol_now(),
	   "a create has the date of its proof");

	get = zklock_client_read(client, ZK_GET, node);
	reply = await_reply(get);
	ok(reply->data_length == 3 && memcmp(reply->data, "who", 3) == 0,
	   "get brings the data");
	zklock_client_free(get);
	is_int(ZK_OK, result_of(zklock_client_check(client, node, 0)),
		   "check finds the node");
	is_int(ZK_NODE_EXISTS,
		   result_of(zklock_client_create(client, node, ZK_EPHEMERAL,
										  NULL)),
		   "a second node of the name is refused");
	zklock_client_free(create);
	zklock_client_free(list);
	remove_node(client, node);
	is_int(ZK_NO_NODE, result_of(zklock_client_check(client, node, 0)),
		   "check does not find a deleted node");
	is_int(ZK_NO_NODE, result_of(zklock_client_read(client, ZK_GET, node)),
		   "get does not find a deleted node either");
	remove_node(client, parent);
}

/* Asking reads nothing, and changes nothing; a look does. */
static void
test_questions(ZkClient *client)
{
	ZkRequest  *get = zklock_client_read(client, ZK_GET, "/");
	struct pollfd readable = {zklock_client_fd(client), POLLIN, 0};
	ZkClientStatus before;

	look_at(client);
	memcpy(&before, zklock_client_status(client), sizeof(before));
	zklock_client_flush(client);
	is_int(1, poll(&readable, 1, PATIENCE_MS), "an answer is there to be read");
	for (int i = 0; i < 2; i++)
	{
		ok(zklock_client_reply(get) == NULL, "zklock_client_reply() does not read from the socket, time %d", i);
		zklock_client_last_error(client);
		ok(zklock_client_watch_news(client) >= ZK_WATCH_QUIET, "zklock_client_watch_news() does not read from the socket");
		ok(memcmp(&before, zklock_client_status(client), sizeof(before)) == 0,
		   "zklock_client_status() does not read from the socket");
	}
	ok(await_reply(get) != NULL, "a look brings it");
	zklock_client_free(get);
}

/*
 * The date of a proof is that of a request which the leader has answered early enough.  What
 * a follower answers alone tells the leader nothing.  A heartbeat would be another such
 * request, so what takes too long here is tried again.
 */
static void
test_proof(ZkClient *client)
{
	ZkClientStatus status;
	Moment		proof = {0};
	int64_t		written_at = 0;
	int			delay_ms;

	status = look_at(client);
	delay_ms = contact_delay_ms(status.session_timeout_ms);
	for (int attempt = 0; attempt < 10 && proof.boot_ms == 0; attempt++)
	{
		int64_t		began_at = protocol_now();
		ZkRequest  *check;

		result_of(zklock_client_set(client, top, "", ZK_ANY_VERSION));
		written_at = protocol_now();
		while (wait_for_news(written_at + delay_ms / 3))
			;
		result_of(zklock_client_read(client, ZK_GET, top));
		for (int64_t until = protocol_now() + delay_ms; wait_for_news(until);)
			;
		check = zklock_client_check(client, top, 0);
		proof = await_reply(check)->proof;
		zklock_client_free(check);
		if (protocol_now() - began_at >=
			delay_ms + contact_heartbeat_ms(status.session_timeout_ms))
			proof.boot_ms = 0;
	}
	ok(proof.boot_ms > 0 && proof.boot_ms <= written_at,
	   "a read does not date a proof, what was written before does");
}

/* Sets and removals of one attempt, with and without a version. */
static void
test_versions(ZkClient *client)
{
	static const char *const bad_paths[] = {"/a/\x1f", "/a"};
	static const char *const good_path = "/a";
	char		parent[80];
	char		node[160];
	ZkRequest  *get;
	const ZkReply *reply;

	make_parent(client, parent, sizeof(parent), "versions");
	snprintf(node, sizeof(node), "%s/kept", parent);
	is_int(ZK_NO_NODE,
		   result_of(zklock_client_set(client, node, "a", 0)),
		   "a node that does not exist is not set");
	is_int(ZK_OK,
		   result_of(zklock_client_create(client, node, ZK_PERSISTENT, "a")),
		   "a persistent node");
	is_int(ZK_OK, result_of(zklock_client_set(client, node, "bc", 0)),
		   "set for the first time");
	is_int(ZK_BAD_VERSION,
		   result_of(zklock_client_set(client, node, "d", 0)),
		   "a second set with the first version fails");
	is_int(ZK_BAD_VERSION,
		   result_of(zklock_client_remove(client, node, 0)),
		   "a remove with the version before the set fails");
	is_int(ZK_BAD_ARGUMENTS,
		   result_of(zklock_client_remove_guarded(client, node, 1,
												  bad_paths, 2, ZK_ANY_VERSION)),
		   "paths that are none are refused");
	is_int(ZK_BAD_ARGUMENTS,
		   result_of(zklock_client_remove_guarded(client, "/a//b", 1,
												  &good_path, 1, ZK_ANY_VERSION)),
		   "a guard with a bad path is refused for a remove");
	is_int(ZK_BAD_ARGUMENTS,
		   result_of(zklock_client_create_guarded(client, "/a//b", node, 1, "")),
		   "a guard with a bad path is refused for a create, and the program goes on");
	get = zklock_client_read(client, ZK_GET, node);
	reply = await_reply(get);
	ok(reply->version == 1 && reply->ephemeral_owner == 0 &&
	   reply->data_length == 2 && memcmp(reply->data, "bc", 2) == 0,
	   "the first set stays");
	zklock_client_free(get);
	is_int(ZK_OK,
		   result_of(zklock_client_set(client, node, "e", ZK_ANY_VERSION)),
		   "set whatever the version");
	is_int(ZK_OK, result_of(zklock_client_remove(client, node, 2)),
		   "removed with the right version");
	is_int(ZK_NO_NODE,
		   result_of(zklock_client_remove(client, node, ZK_ANY_VERSION)),
		   "a second remove finds no node");
	remove_node(client, parent);
}

/* Withdrawn creates leave nothing, wherever their replies are. */
static void
test_withdraw(ZkClient *client)
{
	enum
	{
		COUNT = 300
	};
	char		parent[80];
	char		prefix[128];
	ZkRequest  *requests[COUNT];

	make_parent(client, parent, sizeof(parent), "withdraw");
	snprintf(prefix, sizeof(prefix), "%s/q-", parent);
	for (int i = 0; i < COUNT; i++)
		zklock_client_withdraw(zklock_client_create(client, prefix,
													ZK_EPHEMERAL_SEQUENTIAL,
													NULL));
	is_int(0, await_children(client, parent, 0),
		   "creates withdrawn before their replies leave no node");

	for (int i = 0; i < COUNT; i++)
		requests[i] = zklock_client_create(client, prefix,
										   ZK_EPHEMERAL_SEQUENTIAL, NULL);
	is_int(COUNT, await_children(client, parent, COUNT), "%d nodes are made",
		   COUNT);
	for (int i = 0; i < COUNT; i++)
		zklock_client_withdraw(requests[i]);
	is_int(0, await_children(client, parent, 0),
		   "creates withdrawn after their replies leave no node");
	remove_node(client, parent);
}

/* An empty node can be removed, one with children stays. */
static void
test_children(ZkClient *client)
{
	char		parent[80];
	char		node[128];

	make_parent(client, parent, sizeof(parent), "prune");
	snprintf(node, sizeof(node), "%s/node", parent);
	is_int(ZK_OK,
		   result_of(zklock_client_create(client, node, ZK_EPHEMERAL, NULL)),
		   "a node in it");
	is_int(ZK_FAILED, result_of(zklock_client_remove(client, parent, ZK_ANY_VERSION)),
		   "a node with children is not removed");
	zklock_client_delete(client, node, ZK_ANY_VERSION);
	is_int(ZK_OK, result_of(zklock_client_remove(client, parent, ZK_ANY_VERSION)),
		   "a parent without children is removed");
	is_int(ZK_NO_NODE, result_of(zklock_client_remove(client, parent, ZK_ANY_VERSION)),
		   "a parent is removed only once");
	is_int(0, await_children(client, top, 0), "the removed parent is gone from its own parent");
}

static ZkWatchNews
await_watch(ZkClient *client, int64_t deadline)
{
	while (zklock_client_watch_news(client) == ZK_WATCH_QUIET &&
		   wait_for_news(deadline))
		;
	return zklock_client_watch_news(client);
}

/* A watch of one session fires at another session's delete, and only then. */
static void
test_watch(ZkClient *client)
{
	ZkClient   *other = open_connected();
	char		parent[80];
	char		nodes[2][128];
	int64_t		deadline = protocol_now() + PATIENCE_MS;

	make_parent(client, parent, sizeof(parent), "watch");
	for (int i = 0; i < 2; i++)
	{
		snprintf(nodes[i], sizeof(nodes[i]), "%s/%d", parent, i);
		is_int(ZK_OK,
			   result_of(zklock_client_create(other, nodes[i], ZK_EPHEMERAL,
											  NULL)),
			   "a node to be watched");
		is_int(ZK_OK,
			   result_of(zklock_client_read(client, ZK_GET_AND_WATCH, nodes[i])),
			   "a watch is set");
	}
	remove_node(other, nodes[0]);
	is_int(1, await_children(client, parent, 1), "the first node is gone");
	ok(zklock_client_watch_news(client) == ZK_WATCH_QUIET,
	   "a watch that was given up does not fire");
	remove_node(other, nodes[1]);
	is_int(ZK_WATCH_LOOK_AGAIN, await_watch(client, deadline),
		   "the current watch fires");
	is_int(ZK_NO_NODE,
		   result_of(zklock_client_read(client, ZK_GET_AND_WATCH, nodes[1])),
		   "a node that is gone cannot be watched");
	close_client(other);
	remove_node(client, parent);
}

static ZkClient *
open_with_identity(const char *credentials)
{
	ZkClient   *client = open_with((ZkClientOptions) {
		.servers = servers,
		.auth_scheme = "digest",
		.auth_credentials = credentials,
		.is_auth_private = true
	});

	await_state(client, ZK_CLIENT_CONNECTED);
	return client;
}

/*
 * What the owner hands over is set first.  Somebody else's hand-over is a mere
 * deletion, because the node is its owner's; its parent is everybody's.
 */
static void
test_hand_over(ZkClient *client)
{
	ZkClient   *owner = open_with_identity("zklock:owner");
	ZkClient   *others[2] = {open_with_identity("zklock:other"), client};
	char		parent[80];
	char		node[128];

	make_parent(owner, parent, sizeof(parent), "hand_over");
	snprintf(node, sizeof(node), "%s/node", parent);
	for (int i = -1; i < 2; i++)
	{
		int64_t		deadline = protocol_now() + PATIENCE_MS;

		is_int(ZK_OK,
			   result_of(zklock_client_create(owner, node, ZK_EPHEMERAL,
											  "data")), "a node");
		is_int(ZK_OK, result_of(zklock_client_read(client, ZK_GET_AND_WATCH, node)),
			   "is watched");
		zklock_client_begin_many(i < 0 ? owner : others[i]);
		ok(zklock_client_announce(i < 0 ? owner : others[i], node, NULL) &&
		   zklock_client_delete(i < 0 ? owner : others[i], node, ZK_ANY_VERSION),
		   "the node is announced and its delete is handed over");
		zklock_client_end_many(i < 0 ? owner : others[i]);
		is_int(i < 0 ? ZK_WATCH_SET : ZK_WATCH_LOOK_AGAIN,
			   await_watch(client, deadline),
			   i < 0 ? "the watcher learns so" : "by one who does not own it");
		is_int(0, await_children(client, parent, 0), "the node goes");
	}
	is_int(ZK_OK,
		   result_of(zklock_client_create(client, node, ZK_EPHEMERAL, NULL)),
		   "the parent is open to all");
	remove_node(client, node);
	close_client(owner);
	close_client(others[0]);
	remove_node(client, parent);
}

/* Whether the node that is left is there. */
static void
test_leave(ZkClient *client)
{
	char		node[128];

	snprintf(node, sizeof(node), "%s/left", top);
	for (int i = 0; i < 2; i++)
	{
		ZkRequest  *gone;

		if (i == 0)
			result_of(zklock_client_create(client, node, ZK_EPHEMERAL, NULL));
		/* It is not sent before we have asked. */
		zklock_client_begin_many(client);
		ok(zklock_client_leave(client, node, "some lock", 77, true), "left");
		ok(!zklock_client_is_undone(client), "a node that was left is not yet asked for");
		zklock_client_end_many(client);
		ok(await_silence(client), "all requests are answered after zklock_client_end_many()");
		ok(zklock_client_is_undone(client), "no answer is awaited once the node was asked for");
		look_at(client);
		gone = zklock_client_take_gone(client);
		is_int(i > 0, gone != NULL, i > 0 ? "it was gone" : "it was there");
		if (gone != NULL)
		{
			const ZkReply *reply = zklock_client_reply(gone);

			ok(strcmp(reply->path, node) == 0 && strcmp(reply->children[0], "some lock") == 0 &&
			   reply->czxid == 77, "the report of a node that is gone has its path, its label and its czxid");
			zklock_client_free(gone);
		}
		ok(zklock_client_take_gone(client) == NULL, "a node that was left is reported at most once");
	}
}

/* With all requests under way that there can be. */
static void
test_no_room(ZkClient *client)
{
	static ZkRequest *requests[1 << 17];
	int			nrequests = 0;
	char		path[128];

	snprintf(path, sizeof(path), "%s/announce", top);
	result_of(zklock_client_create(client, path, ZK_EPHEMERAL, NULL));
	while (nrequests < 1 << 17 &&
		   (requests[nrequests] = zklock_client_read(client, ZK_GET, path)) != NULL)
		nrequests++;
	ok(nrequests > 0 && nrequests <= 1 << 16, "the number of requests under way is bounded");
	ok(zklock_client_announce(client, path, "a"),
	   "an announcement is possible without room for requests");
	while (nrequests > 0)
		zklock_client_free(requests[--nrequests]);
	ok(await_silence(client), "all requests are answered");
	remove_node(client, path);
}

/* Closing removes the nodes, with requests outstanding too. */
static void
test_close(ZkClient *client)
{
	char		parent[80];
	char		prefix[128];
	int64_t		closed_at;

	make_parent(client, parent, sizeof(parent), "close");
	snprintf(prefix, sizeof(prefix), "%s/q-", parent);
	for (int round = 0; round < 10; round++)
	{
		ZkClient   *other = open_client(servers);
		int64_t		began;

		for (int i = 0; i < 20; i++)
			zklock_client_create(other, prefix, ZK_EPHEMERAL_SEQUENTIAL,
								 NULL);
		if (round % 2 == 0)
			await_state(other, ZK_CLIENT_CONNECTED);
		began = protocol_now();
		close_client(other);
		ok(protocol_now() - began < SESSION_TIMEOUT_MS,
		   "close does not hang, round %d", round);
	}
	closed_at = protocol_now();
	is_int(0, await_children(client, parent, 0),
		   "closed sessions leave no node");
	ok(protocol_now() - closed_at < SESSION_TIMEOUT_MS / 2,
	   "nodes of closed sessions go before the session timeout");
	remove_node(client, parent);
}

static volatile sig_atomic_t nsignals;

static void
count_signal(int number)
{
	(void) number;
	nsignals++;
}

/* Wait until so many signals have come; how many have. */
static int
await_signals(int expected)
{
	int64_t		deadline = protocol_now() + PATIENCE_MS;

	while (nsignals < expected && wait_for_news(deadline))
		;
	return nsignals;
}

/* Where no session is to be had, that is said, and nothing hangs. */
static void
test_failures(void)
{
	ZkClient   *client;
	ZkClientStatus status;
	char		error[512] = "";
	int64_t		deadline = protocol_now() + PATIENCE_MS;

	/* port 1 of the loopback device: nobody listens */
	client = open_client("127.0.0.1:1");
	do
	{
		look_at(client);
		snprintf(error, sizeof(error), "%s", zklock_client_last_error(client));
	} while (error[0] == '\0' && wait_for_news(deadline));
	ok(strstr(error, "refused") != NULL, "a refused connection is named: %s",
	   error);
	status = look_at(client);
	ok(!status.was_connected, "a refused connection does not count as a connection");
	close_client(client);

	client = open_client("no-such-host.invalid:2181");
	status = await_state(client, ZK_CLIENT_CONNECTED);
	is_int(ZK_CLIENT_LOST, status.state, "an unknown name is final");
	is_int(ZK_LOSS_RESOLVE, status.loss, "the loss over an unknown name has its reason");
	snprintf(error, sizeof(error), "%s", zklock_client_last_error(client));
	ok(strstr(error, "no-such-host.invalid") != NULL, "the error names the unknown host: %s",
	   error);
	close_client(client);

	/* closed before the look-up is over */
	client = open_client("no-such-host.invalid:2181");
	close_client(client);
	ok(true, "a client can be closed while it looks up names");
}

/* Is there a process of that number that has not ended? */
static bool
is_running(int pid)
{
	return kill(pid, 0) == 0;
}

/*
 * Wait until it has ended and was reaped; was it?  Its end of the channel is
 * closed a moment before.
 */
static bool
await_reaped(int pid)
{
	int64_t		deadline = protocol_now() + PATIENCE_MS;

	while (is_running(pid) && wait_for_news(deadline))
		;
	return !is_running(pid);
}

/* Wait until the client's session is lost, and why. */
static ZkClientLoss
await_loss(ZkClient *client)
{
	return await_state(client, ZK_CLIENT_LOST).loss;
}

/*
 * The program is killed: it is reaped, the loss is known at once and interrupts,
 * and the session, which the ensemble would keep, is ended by another program.
 */
static void
test_killed_program(ZkClient *client)
{
	static const int signals[] = {SIGKILL, SIGABRT};
	struct sigaction action = {.sa_handler = count_signal};
	char		parent[80];
	char		path[128];

	sigaction(SIGINT, &action, NULL);
	make_parent(client, parent, sizeof(parent), "killed");
	snprintf(path, sizeof(path), "%s/node", parent);
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
	{
		ZkClient   *other = open_connected();
		ZkClientStatus status;
		ZkRequest  *get;
		int64_t		began;

		nsignals = 0;
		is_int(ZK_OK,
			   result_of(zklock_client_create(other, path, ZK_EPHEMERAL,
											  NULL)), "a node");
		status = look_at(other);
		zklock_client_interrupt_on_loss(other, i != 1);
		is_int(ZK_OK, result_of(zklock_client_read(other, ZK_GET_AND_WATCH, path)), "the node of the other client is watched");
		began = protocol_now();
		kill(status.program_pid, signals[i]);
		is_int(ZK_LOSS_PROGRAM, await_loss(other), "the death of the program by a signal is a loss");
		is_int(i != 1, await_signals(i != 1), "a loss interrupts the backend only where it has asked for that");
		ok(await_reaped(status.program_pid), "a killed program is reaped");
		status = look_at(other);
		is_int(0, status.program_pid, "the status names no program after its death");
		is_int(ZK_WATCH_LOOK_AGAIN, zklock_client_watch_news(other), "a watch tells to look again after the death of the program");
		get = zklock_client_read(other, ZK_GET, path);
		zklock_client_flush(other);
		ok(zklock_client_reply(get) == NULL, "nothing is answered any more");
		zklock_client_free(get);
		close_client(other);
		is_int(0, await_children(client, parent, 0), "the node goes");
		ok(protocol_now() - began < SESSION_TIMEOUT_MS / 2,
		   "long before the session timeout");
	}
	remove_node(client, parent);
}

/* A program that stands still is given up after the session timeout. */
static void
test_stopped_program(ZkClient *client)
{
	ZkClient   *other = open_connected();
	char		parent[80];
	char		path[128];
	ZkClientStatus status;
	ZkClientStatus lost;
	int64_t		began = protocol_now();

	make_parent(client, parent, sizeof(parent), "stopped");
	snprintf(path, sizeof(path), "%s/node", parent);
	is_int(ZK_OK,
		   result_of(zklock_client_create(other, path, ZK_EPHEMERAL, NULL)),
		   "a node");
	status = look_at(other);
	kill(status.program_pid, SIGSTOP);
	do
		lost = look_at(other);
	while (lost.state != ZK_CLIENT_LOST && wait_for_news(began + PATIENCE_MS));
	is_int(ZK_LOSS_PROGRAM, lost.loss, "a program that stands still is lost");
	ok(protocol_now() - began >= SESSION_TIMEOUT_MS * 9 / 10,
	   "a program that stands still is not lost early");
	kill(status.program_pid, SIGCONT);
	is_int(0, await_children(client, parent, 0), "the node of a stopped program goes without a close of its session");
	close_client(other);
	remove_node(client, parent);
}

/* More than the socket takes: nothing is lost, and a program that never reads is. */
static void
test_full_socket(ZkClient *client)
{
	enum
	{
		COUNT = 20000
	};
	ZkClient   *other = open_connected();
	char		parent[80];
	char		path[1100];
	ZkClientStatus status;
	int64_t		began;
	int			program;

	make_parent(client, parent, sizeof(parent), "full");
	status = look_at(other);
	program = status.program_pid;
	snprintf(path, sizeof(path), "%s/%01000d", parent, 0);
	kill(program, SIGSTOP);
	zklock_client_begin_many(other);
	for (int i = 0; i < 200; i++)
		zklock_client_delete(other, path, ZK_ANY_VERSION);
	kill(program, SIGCONT);
	zklock_client_end_many(other);
	for (int i = 0; i < COUNT; i++)
		zklock_client_delete(other, path, ZK_ANY_VERSION);
	is_int(ZK_NO_NODE, result_of(zklock_client_read(other, ZK_GET, path)),
		   "%d deletes at once are all sent", COUNT);
	ok(await_silence(other), "all deletes are answered");

	kill(program, SIGSTOP);
	began = protocol_now();
	for (int i = 0; i < COUNT; i++)
		zklock_client_delete(other, path, ZK_ANY_VERSION);
	ok(protocol_now() - began < 5000,
	   "a program that does not read is not waited for for long");
	status = look_at(other);
	is_int(ZK_LOSS_PROGRAM, status.loss, "a program that does not read is given up");
	kill(program, SIGCONT);
	close_client(other);
	remove_node(client, parent);
}

/*
 * What the handler of SIGCHLD owes to whom it interrupts, and a child that was
 * forked to the session of its parent.
 */
static void
test_manners(void)
{
	ZkClient   *other = open_connected();
	ZkClientStatus status;
	struct sigaction handler;
	sigset_t	sigchld;
	siginfo_t	ended;
	int			result;
	pid_t		child;

	sigaction(SIGCHLD, NULL, &handler);
	ok((handler.sa_flags & SA_RESTART) != 0, "a call that SIGCHLD interrupts goes on");
	status = look_at(other);
	zklock_client_interrupt_on_loss(other, true);
	nsignals = 0;
	child = fork();
	if (child == 0)
	{
		raise(SIGCHLD);
		zklock_client_close(other, 0);
		_exit(nsignals);
	}
	ok(waitpid(child, &result, 0) == child && result == 0, "a forked child has no program that could end");
	is_int(ZK_OK, result_of(zklock_client_check(other, top, 0)), "the end of a forked child leaves its parent's session open");

	/* somebody else reaps the program, so that the handler's waitpid() fails */
	sigemptyset(&sigchld);
	sigaddset(&sigchld, SIGCHLD);
	sigprocmask(SIG_BLOCK, &sigchld, NULL);
	kill(status.program_pid, SIGKILL);
	ok(waitpid(status.program_pid, &result, 0) == status.program_pid, "the program ends");
	errno = EDOM;
	sigprocmask(SIG_UNBLOCK, &sigchld, NULL);
	is_int(EDOM, errno, "the handler leaves errno alone");
	is_int(1, nsignals, "the handler has told of the loss once");
	is_int(ZK_LOSS_PROGRAM, await_loss(other), "the loss is known as the death of the program");
	close_client(other);

	/* somebody has taken the handler away when it dies */
	other = open_connected();
	status = look_at(other);
	handler.sa_handler = SIG_DFL;
	sigaction(SIGCHLD, &handler, NULL);
	kill(status.program_pid, SIGKILL);
	waitid(P_PID, (id_t) status.program_pid, &ended, WEXITED | WNOWAIT);
	zklock_channel_watch();
	ok(!is_running(status.program_pid), "a program that ended without a handler is reaped by the next handler");
	close_client(other);
}

/* How many descriptors this process has open, and one to look. */
static int
count_descriptors(void)
{
	DIR		   *directory = opendir("/proc/self/fd");
	int			count = 0;

	while (directory != NULL && readdir(directory) != NULL)
		count++;
	if (directory != NULL)
		closedir(directory);
	return count;
}

/* What is no program of ours, or is none at all, is a loss with its reason. */
static void
test_bad_programs(void)
{
	static const char *const programs[] = {
		"/no/such/program", "/", "/bin/true", "/bin/cat", "/bin/echo"
	};

	for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++)
	{
		int			ndescriptors = count_descriptors();
		ZkClient   *client = open_with((ZkClientOptions) {
			.servers = servers, .program = programs[i]
		});
		ZkRequest  *get = zklock_client_read(client, ZK_GET, "/");
		ZkClientLoss loss = await_loss(client);
		char		error[512];

		snprintf(error, sizeof(error), "%s", zklock_client_last_error(client));
		ok(loss == ZK_LOSS_RESOURCES || loss == ZK_LOSS_PROGRAM,
		   "%s is no session: %s", programs[i], error);
		zklock_client_free(get);
		close_client(client);
		is_int(ndescriptors, count_descriptors(), "a program that is no session leaves no descriptor open");
	}
}

/* Where the first descriptors are free they are not used up. */
static void
test_low_descriptors(void)
{
	int			result;
	pid_t		child = fork();

	if (child == 0)
	{
		int			before;

		close(PROTOCOL_CHANNEL_FD);
		close(PROTOCOL_PAGE_FD);
		before = count_descriptors();
		zklock_client_close(zklock_client_open(&(ZkClientOptions) {
			.program = "/bin/true", .servers = servers
		}), PATIENCE_MS);
		_exit(count_descriptors() - before);
	}
	ok(waitpid(child, &result, 0) == child && result == 0, "descriptors that are raised are closed");
}

/* Names are looked up in the background; then it is a session like any. */
static void
test_name(void)
{
	char		text[64];
	ZkClient   *client;
	ZkClientStatus status;

	snprintf(text, sizeof(text), "localhost%s", strrchr(servers, ':'));
	client = open_client(text);
	status = await_state(client, ZK_CLIENT_CONNECTED);
	is_int(ZK_CLIENT_CONNECTED, status.state, "a host name connects");
	close_client(client);
}

/* ---------------------------------------------------------------------
 * With a server of our own
 * ---------------------------------------------------------------------
 */

static ZkClient *
open_at(FakeServer *server, int timeout_ms)
{
	ZkClient   *client;

	fake_begin(server);
	client = open_client(server->address);
	zklock_client_flush(client);
	ok(fake_grant(server, timeout_ms), "a server that we are grants a session");
	await_state(client, ZK_CLIENT_CONNECTED);
	return client;
}

/* The create of a client, which its server has just got. */
static ZkRequest *
begin_create(ZkClient *client, FakeServer *server, ZkNodeKind kind, FakeRequest *got)
{
	ZkRequest  *create = zklock_client_create(client, "/a/q-", kind, NULL);

	zklock_client_flush(client);
	*got = fake_await(server, FAKE_CREATE);
	return create;
}

/* The answer to a question tells those before it, too, that of a create wakes nobody. */
static ZkResult
ask_at(ZkClient *client, FakeServer *server)
{
	ZkRequest  *get = zklock_client_read(client, ZK_GET, "/a");
	FakeRequest got;

	zklock_client_flush(client);
	got = fake_await(server, FAKE_GET);
	fake_answer(server, &got, FAKE_NO_NODE, NULL, 0);
	return result_of(get);
}

/* Wait until nothing is to be undone, nor under way, nor refused; is that so? */
static bool
await_undone(ZkClient *client)
{
	int64_t		deadline = protocol_now() + PATIENCE_MS;
	ZkClientStatus status;

	do
		status = look_at(client);
	while ((!zklock_client_is_undone(client) || zklock_client_count_pending(client) > 0 || status.nrefused > 0) &&
		   status.state == ZK_CLIENT_CONNECTED && wait_for_news(deadline));
	return zklock_client_is_undone(client) && zklock_client_count_pending(client) == 0 && status.nrefused == 0 &&
		status.state == ZK_CLIENT_CONNECTED;
}

static void
end_with(ZkClient *client, FakeServer *server)
{
	fake_end(server);
	for (int i = 0; i < CLIENTS_MAX; i++)
		if (clients[i] == client)
			clients[i] = NULL;
	zklock_client_close(client, ZK_CHANNEL_KILL);
}

/* Whatever came of what is withdrawn: it is undone once, and no longer waited for. */
static void
test_undone(void)
{
	FakeServer	server;
	ZkClient   *client = open_at(&server, SESSION_TIMEOUT_MS);
	FakeRequest got;
	ZkRequest  *request;
	ZkRequest  *other;

	request = begin_create(client, &server, ZK_EPHEMERAL_SEQUENTIAL, &got);
	fake_answer_made(&server, &got, "/a/q-0000000007");
	ask_at(client, &server);
	zklock_client_withdraw(request);
	ok(!zklock_client_is_undone(client), "a withdrawn create that made a node is to be undone");
	got = fake_await(&server, FAKE_DELETE);
	is_str("/a/q-0000000007", got.path, "the node of a withdrawn create is deleted");
	is_int(-1, got.last, "the node of a withdrawn create is deleted whatever its version");
	fake_answer(&server, &got, 0, NULL, 0);
	ok(await_undone(client), "nothing is to be undone after the delete");

	request = begin_create(client, &server, ZK_EPHEMERAL_SEQUENTIAL, &got);
	fake_answer(&server, &got, FAKE_NO_NODE, NULL, 0);
	ask_at(client, &server);
	is_int(ZK_NO_NODE, await_reply(request)->result, "a create that has failed");
	zklock_client_withdraw(request);
	ok(await_undone(client), "a create that has failed leaves nothing to wait for");
	request = begin_create(client, &server, ZK_EPHEMERAL_SEQUENTIAL, &got);
	zklock_client_withdraw(request);
	fake_answer(&server, &got, FAKE_NO_NODE, NULL, 0);
	ok(await_undone(client), "a withdrawn create that fails leaves nothing to undo");
	request = zklock_client_read(client, ZK_LIST, "/a");
	ask_at(client, &server);
	zklock_client_withdraw(request);
	ok(await_undone(client), "a withdrawn question leaves nothing to undo");

	request = begin_create(client, &server, ZK_EPHEMERAL_SEQUENTIAL, &got);
	fake_answer_made(&server, &got, "/a/q-0000000001");
	other = begin_create(client, &server, ZK_EPHEMERAL_SEQUENTIAL, &got);
	fake_answer_made(&server, &got, "/a/q-0000000002");
	ask_at(client, &server);
	await_reply(other);
	zklock_client_begin_many(client);
	zklock_client_withdraw(request);
	zklock_client_free(other);
	zklock_client_end_many(client);
	got = fake_await(&server, FAKE_DELETE);
	is_str("/a/q-0000000001", got.path, "a delete among many requests is sent at their end");
	fake_answer(&server, &got, 0, NULL, 0);
	ok(await_undone(client), "the delete at the end of many requests is done");
	zklock_client_free(zklock_client_read(client, ZK_LIST, "/a"));
	is_int(FAKE_LIST, fake_await(&server, FAKE_LIST).type, "a question is sent even if nobody waits for its answer");
	end_with(client, &server);
}

/* An answer that comes late is for its own question alone. */
static void
test_late_answer(void)
{
	FakeServer	server;
	ZkClient   *client = open_at(&server, SESSION_TIMEOUT_MS);
	ZkRequest  *request = zklock_client_read(client, ZK_GET, "/a");
	FakeRequest got[2];

	zklock_client_flush(client);
	got[0] = fake_await(&server, FAKE_GET);
	zklock_client_free(request);
	request = zklock_client_read(client, ZK_LIST, "/a");
	zklock_client_flush(client);
	got[1] = fake_await(&server, FAKE_LIST);
	fake_answer(&server, &got[0], FAKE_NO_NODE, NULL, 0);
	fake_answer(&server, &got[1], FAKE_NO_AUTH, NULL, 0);
	is_int(ZK_NO_AUTH, result_of(request), "the next question has its own answer");
	end_with(client, &server);
}

/*
 * A request without an answer has another one behind it, later each time: the server may have
 * forgotten it.  Each answer begins that anew.
 */
static void
test_nudges(void)
{
	static const int delays[] = {300, 600, 1200};
	FakeServer	server;
	ZkClient   *client = open_at(&server, SESSION_TIMEOUT_MS);
	FakeRequest got;
	int64_t		since;

	zklock_client_read(client, ZK_LIST, "/a");
	zklock_client_read(client, ZK_LIST, "/a");
	zklock_client_flush(client);
	got = fake_await(&server, FAKE_LIST);
	fake_await(&server, FAKE_LIST);
	fake_has_input(&server, 150);
	since = protocol_now();
	fake_answer(&server, &got, FAKE_NO_NODE, NULL, 0);
	for (int i = 0; i < 3; i++)
	{
		int64_t		took;

		/* the answer to a ping is none, and a heartbeat is not for that */
		while ((got = fake_read(&server)).type != FAKE_GET && got.type != 0)
			if (got.type == FAKE_PING)
				fake_answer(&server, &got, 0, NULL, 0);
		took = protocol_now() - since;
		is_int(FAKE_GET, got.type, "something else is asked");
		ok(took >= delays[i], "the next question comes not before %d ms, after %d", delays[i], (int) took);
	}
	end_with(client, &server);
}

/* Connections that end one after the other are no loss if each has brought an answer. */
static void
test_short_connections(void)
{
	FakeServer	server;
	ZkClient   *client = open_at(&server, 3000);
	int64_t		began = protocol_now();
	int64_t		asked = began;
	int64_t		longest = 0;	/* without a question, and so without an answer */
	ZkClientStatus status;

	for (int i = 0; i < 6; i++)
	{
		ask_at(client, &server);
		ok(fake_grant(&server, 3000), "the next connection");
	}
	do
	{
		ask_at(client, &server);
		if (protocol_now() - asked > longest)
			longest = protocol_now() - asked;
		asked = protocol_now();
		poll(NULL, 0, 20);
		status = look_at(client);
	}
	while (protocol_now() - began < 3500 && status.state == ZK_CLIENT_CONNECTED);

	/* a busy machine may stand still for that long */
	ok(status.state == ZK_CLIENT_CONNECTED || longest > 1000, "the session stays");
	end_with(client, &server);
}

/* A place is watched after a moment, as long as it is one; that it is gone is told. */
static void
test_places(void)
{
	FakeServer	server;
	ZkClient   *client = open_at(&server, SESSION_TIMEOUT_MS);
	FakeRequest got;
	ZkRequest  *places[2];
	const ZkReply *reply;
	int64_t		deadline;
	int			nlists = 0;

	for (int i = 0; i < 2; i++)
	{
		char		path[32];

		places[i] = begin_create(client, &server, ZK_EPHEMERAL_SEQUENTIAL, &got);
		if (i == 1)
			zklock_client_free(places[i]);
		snprintf(path, sizeof(path), "/a/q-000000000%d", i);
		fake_answer_made(&server, &got, path);
	}
	ask_at(client, &server);
	got = fake_await(&server, FAKE_LIST);
	is_str("/a/q-0000000000", got.path, "a place is watched");
	fake_answer(&server, &got, FAKE_NO_NODE, NULL, 0);
	deadline = protocol_now() + PATIENCE_MS;
	while ((reply = zklock_client_reply(places[0])) != NULL && reply->result != ZK_NO_NODE &&
		   wait_for_news(deadline))
		;
	is_int(ZK_NO_NODE, reply->result, "the place of a node that is gone is told");
	while (fake_has_input(&server, 600))
	{
		got = fake_read(&server);
		nlists += got.type == FAKE_LIST;
		fake_answer(&server, &got, got.type == FAKE_PING ? 0 : FAKE_NO_NODE, NULL, 0);
		if (got.type == 0)
			break;
	}
	is_int(0, nlists, "no list is asked for a place that was freed");
	end_with(client, &server);
}

/*
 * A create whose answer is lost is looked for by its name, and all go that have it.
 */
static void
test_lost_answer(void)
{
	static const char *const children[] = {"q-0000000001", "other", "q-0000000002"};
	FakeServer	server;
	ZkClient   *client = open_at(&server, SESSION_TIMEOUT_MS);
	FakeRequest got;
	ZkClientStatus status;
	char		list[128];
	uint32_t	count = htonl(3);
	char	   *end = list + sizeof(count);

	zklock_client_withdraw(begin_create(client, &server, ZK_EPHEMERAL_SEQUENTIAL, &got));
	status = look_at(client);
	is_int(1, status.nconnects, "the client has connected once");
	ok(fake_grant(&server, SESSION_TIMEOUT_MS), "the client connects a second time");
	got = fake_await(&server, FAKE_LIST);
	is_str("/a", got.path, "the client lists the parent for a node it may have made");
	ok(!zklock_client_is_undone(client), "a create without an answer is to be undone");
	memcpy(list, &count, sizeof(count));
	for (int i = 0; i < 3; i++)
		end = fake_put_text(end, children[i]);
	fake_answer(&server, &got, 0, list, (size_t) (end - list));
	for (int i = 1; i <= 2; i++)
	{
		char		path[32];

		got = fake_await(&server, FAKE_DELETE);
		snprintf(path, sizeof(path), "/a/q-000000000%d", i);
		is_str(path, got.path, "each node that may be the lost one is deleted");
		fake_answer(&server, &got, 0, NULL, 0);
	}
	ok(await_undone(client), "nothing is to be undone after the deletes");
	status = look_at(client);
	is_int(2, status.nconnects, "two connections were made");
	end_with(client, &server);
}

/*
 * A delete that is refused is sent again: after twice the time each time, up to a quarter of
 * the session timeout.  Who waits for it waits no more, and it counts as under way.
 */
static void
test_refused_delete(void)
{
	static const int delays[] = {100, 200, 400, 800, 1500, 1500, 1500};
	int			ndelays = sizeof(delays) / sizeof(delays[0]);
	FakeServer	server;
	ZkClient   *client = open_at(&server, 6 * 1000);
	FakeRequest got;
	FakeRequest both[2];
	ZkRequest  *second;
	ZkRequest  *create = begin_create(client, &server, ZK_EPHEMERAL_SEQUENTIAL, &got);
	ZkClientStatus status;
	int64_t		deadline = protocol_now() + PATIENCE_MS;
	int64_t		refused_at = 0;
	int64_t		shortest = PATIENCE_MS;

	fake_answer_made(&server, &got, "/a/q-0000000007");
	ask_at(client, &server);
	zklock_client_withdraw(create);
	for (int i = 0; i <= ndelays; i++)
	{
		int64_t		took;

		got = fake_await(&server, FAKE_DELETE);
		took = protocol_now() - refused_at;
		is_str("/a/q-0000000007", got.path, "the delete comes");
		if (i > 0)
			ok(took >= delays[i - 1], "the next delete comes not before %d ms, after %d", delays[i - 1], (int) took);
		if (i > ndelays - 2 && took < shortest)
			shortest = took;
		if (i == ndelays)
			break;
		refused_at = protocol_now();
		fake_answer(&server, &got, FAKE_NO_AUTH, NULL, 0);
		if (i > 0)
			continue;
		do
			status = look_at(client);
		while (status.nrefused == 0 && wait_for_news(deadline));
		is_int(1, status.nrefused, "the delete counts as refused");
		is_int(1, zklock_client_count_pending(client), "the refused delete counts as under way");
		ok(zklock_client_is_undone(client), "nobody waits for a refused delete");
	}
	ok(shortest < 2200, "the last delete comes not much later than a quarter of the session timeout, %d ms", (int) shortest);
	fake_answer(&server, &got, 0, NULL, 0);
	ok(await_undone(client), "nothing is to be undone once the delete is done");

	/* the next one is waited for; and one that is under way is not sent again with another */
	create = begin_create(client, &server, ZK_EPHEMERAL_SEQUENTIAL, &got);
	fake_answer_made(&server, &got, "/a/q-0000000001");
	second = begin_create(client, &server, ZK_EPHEMERAL_SEQUENTIAL, &got);
	fake_answer_made(&server, &got, "/a/q-0000000002");
	ask_at(client, &server);
	zklock_client_withdraw(create);
	ok(!zklock_client_is_undone(client), "a delete that was not refused is waited for");
	both[0] = fake_await(&server, FAKE_DELETE);
	zklock_client_withdraw(second);
	both[1] = fake_await(&server, FAKE_DELETE);
	fake_answer(&server, &both[0], FAKE_NO_AUTH, NULL, 0);
	both[0] = fake_await(&server, FAKE_DELETE);
	fake_answer(&server, &both[1], FAKE_NO_AUTH, NULL, 0);
	both[1] = fake_await(&server, FAKE_DELETE);
	is_str("/a/q-0000000001", both[0].path, "the first one is sent again");
	is_str("/a/q-0000000002", both[1].path, "the second delete is sent again after the first");
	for (int i = 0; i < 2; i++)
		fake_answer(&server, &both[i], 0, NULL, 0);
	ok(await_undone(client), "each delete is sent again once");
	end_with(client, &server);
}

/*
 * An answer that somebody waits for is told at once, though one for which nobody waits comes
 * right behind it.
 */
static void
test_two_answers(void)
{
	FakeServer	server;
	ZkClient   *client = open_at(&server, SESSION_TIMEOUT_MS);
	ZkRequest  *get = zklock_client_read(client, ZK_GET, "/a");
	FakeRequest asked;
	FakeRequest got;
	ZkClientStatus status;
	char		bytes[128];

	zklock_client_create(client, "/a/q-", ZK_EPHEMERAL_SEQUENTIAL, NULL);
	zklock_client_flush(client);
	while ((asked = fake_read(&server)).type != FAKE_GET && asked.type != 0)
		;
	while ((got = fake_read(&server)).type != FAKE_CREATE && got.type != 0)
		;
	/* Both are there when it looks for the first one. */
	send(server.fd, bytes, (size_t) (fake_put(fake_put(bytes, &asked, FAKE_NO_NODE, NULL, 0),
											  &got, FAKE_NO_NODE, NULL, 0) - bytes), MSG_NOSIGNAL);
	await_reply(get);
	status = look_at(client);
	is_int(ZK_CLIENT_CONNECTED, status.state, "two answers at once are told before there is other news");
	end_with(client, &server);
}

/*
 * The session is closed behind what is under way, or when that takes too long; and the
 * connection stays until the server ends it.  On a busy machine our side is late now and then.
 */
static void
test_way_out(void)
{
	bool		is_late = true;

	for (int round = 0; round < 10 && is_late; round++)
	{
		FakeServer	server;
		ZkClient   *client = open_at(&server, SESSION_TIMEOUT_MS);
		FakeRequest got;
		ZkClientStatus status;

		status = look_at(client);
		zklock_client_read(client, ZK_GET, "/a");
		zklock_client_flush(client);
		got = fake_await(&server, FAKE_GET);
		for (int i = 0; i < CLIENTS_MAX; i++)
			if (clients[i] == client)
				clients[i] = NULL;
		zklock_client_close(client, 0);
		/* A nudge may come, but not the close. */
		is_late = fake_has_input(&server, 100) && fake_read(&server).type == FAKE_CLOSE;
		if (is_late)
			note("the close was here before the answer");
		else
		{
			fake_answer(&server, &got, FAKE_NO_NODE, NULL, 0);
			got = fake_await(&server, FAKE_CLOSE);
			is_int(FAKE_CLOSE, got.type, "the session is closed behind the answer");
			fake_answer(&server, &got, 0, NULL, 0);
			ok(!fake_has_input(&server, 1000), "the connection stays until the server ends it");
		}
		fake_end(&server);
		ok(await_reaped(status.program_pid), "the program ends after the server's end of the connection");
	}
	ok(!is_late, "the close waits for the answer");
}

/* Nor does the backend wait while the server is slow to end the connection. */
static void
test_slow_end(void)
{
	FakeServer	server;
	ZkClient   *client = open_at(&server, SESSION_TIMEOUT_MS);
	int64_t		began;
	pid_t		child = fork();

	if (child == 0)
	{
		FakeRequest got = fake_await(&server, FAKE_CLOSE);

		fake_answer(&server, &got, 0, NULL, 0);
		while (fake_has_input(&server, PATIENCE_MS) && fake_read(&server).type != 0)
			;
		_exit(0);
	}
	fake_end(&server);
	for (int i = 0; i < CLIENTS_MAX; i++)
		if (clients[i] == client)
			clients[i] = NULL;
	began = protocol_now();
	zklock_client_close(client, PATIENCE_MS);
	ok(protocol_now() - began < 2500, "a close does not wait for the end of the connection: %d ms",
	   (int) (protocol_now() - began));
	waitpid(child, NULL, 0);
}

/* Answers that nobody reads fill the socket; none is lost, and all are there when they are read. */
static void
test_unread_answers(ZkClient *client)
{
	enum
	{
		COUNT = 60,
		SIZE = 400 * 1000
	};
	ZkClient   *other = open_connected();
	ZkRequest  *requests[COUNT];
	char	   *data = calloc(1, SIZE + 1);
	char		path[128];
	int			unread = 0;
	int			former;
	int			ngood = 0;
	int64_t		began;

	snprintf(path, sizeof(path), "%s/long", top);
	memset(data, 'x', SIZE);
	is_int(ZK_OK, result_of(zklock_client_create(client, path, ZK_EPHEMERAL, data)), "a long node");
	free(data);
	for (int i = 0; i < COUNT; i++)
		requests[i] = zklock_client_read(other, ZK_GET, path);
	zklock_client_flush(other);
	for (int i = 0; i < PATIENCE_MS / 200; i++)
	{
		former = unread;
		poll(NULL, 0, 200);
		ioctl(zklock_client_fd(other), FIONREAD, &unread);
		if (unread > 0 && unread == former)
			break;
	}
	began = protocol_now();
	for (int i = 0; i < COUNT; i++)
	{
		const ZkReply *reply = await_reply(requests[i]);

		ngood += reply != NULL && reply->result == ZK_OK && reply->data_length == SIZE;
		zklock_client_free(requests[i]);
	}
	is_int(COUNT, ngood, "%d long answers that were not read wait for us", COUNT);
	ok(protocol_now() - began < 2 * PATIENCE_MS, "long answers come as fast as they are read");
	close_client(other);
	remove_node(client, path);
}

int
main(void)
{
	ZkClient   *client;

	servers = getenv("ZKLOCK_TEST_SERVERS");
	if (servers == NULL)
	{
		printf("Bail out! ZKLOCK_TEST_SERVERS is not set\n");
		return 1;
	}

	/* with that, which is not for it, the program would list its libraries and end */
	zklock_channel_keep_environment();
	setenv("LD_TRACE_LOADED_OBJECTS", "1", 1);
	client = open_connected();
	ok(client != NULL, "a program gets the environment of the beginning");
	snprintf(top, sizeof(top), "/test_client_%d", (int) getpid());
	is_int(ZK_OK, result_of(zklock_client_create(client, top, ZK_PERSISTENT,
												 NULL)), "top is made");
	test_requests(client);
	test_questions(client);
	test_proof(client);
	test_versions(client);
	test_withdraw(client);
	test_children(client);
	test_watch(client);
	test_hand_over(client);
	test_leave(client);
	test_no_room(client);
	test_close(client);
	test_killed_program(client);
	test_stopped_program(client);
	test_full_socket(client);
	test_manners();
	test_bad_programs();
	test_low_descriptors();
	test_name();
	test_failures();
	test_undone();
	test_late_answer();
	test_nudges();
	test_short_connections();
	test_places();
	test_lost_answer();
	test_refused_delete();
	test_two_answers();
	test_way_out();
	test_slow_end();
	test_unread_answers(client);
	is_int(0, await_children(client, top, 0), "nothing is left");
	remove_node(client, top);
	close_client(client);
	return done_testing();
}
