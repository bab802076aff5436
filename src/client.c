/*-------------------------------------------------------------------------
 *
 * client.c
 *	  One ZooKeeper session of this process: open, requests, watch, close.
 *
 * The only file that calls the ZooKeeper C client library (libzookeeper_mt),
 * and it knows nothing of PostgreSQL, so that it runs alone under
 * ThreadSanitizer and AddressSanitizer (test/unit/test_client.c).
 *
 * Three threads meet here.  The process's main thread calls the public
 * functions.  The library's completion thread runs the callbacks; these may
 * use the mutex below, malloc(), the library's asynchronous calls and
 * write(), nothing else.  The library's I/O thread runs only the log callback,
 * at times with locks of the library held; it uses log_mutex alone.
 *
 * Who owns what: requests and clients are malloc'ed, because PostgreSQL's
 * error exits leave requests behind that the library still knows.  A request
 * belongs to the main thread once it is done, to the callbacks until then; what
 * is left is freed with the client, after the library's threads are gone.  The
 * library is handed numbers, never pointers: a reply to a request that no
 * longer exists finds nothing.
 *
 * Rules R1 to R12 in the comments are the library's traps, found by
 * experiment with release 3.8.0:
 *	R1	numeric addresses only, its own name resolution switched off
 *	R2	an odd number of addresses (ZOOKEEPER-2466)
 *	R3	no synchronous call: they cannot be interrupted and may never return
 *	R4	no close with requests outstanding: the server may never see the close
 *	R5	two threads must be possible before zookeeper_init(), which asserts
 *	R6	transactions of one operation only: longer ones can crash the client
 *	R8	a timed-out request has an unknown outcome, like a lost connection
 *	R10	a nudge when no answer comes (ZOOKEEPER-4537)
 *	R12	never a NULL completion
 *
 *-------------------------------------------------------------------------
 */
#ifndef THREADED
#define THREADED
#endif

#include "client.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <zookeeper/zookeeper.h>

/*
 * Stack of every thread that we cause.  The default of 8 MB counts against
 * overcommit for each of two threads in each backend; the library needs less
 * than 64 kB, getaddrinfo() with its plug-ins less than 256.
 */
#ifdef __SANITIZE_THREAD__
#define THREAD_STACK_SIZE (8 * 1024 * 1024) /* it keeps its state there */
#else
#define THREAD_STACK_SIZE (512 * 1024)
#endif

/*
 * How long a close waits for outstanding requests before it goes ahead (R4).
 * A server in good health answers within milliseconds.
 */
#define DRAIN_MS 400

/*
 * A session may be granted at most this timeout, or the one asked for if that
 * is more.  An answer beyond it is not from ZooKeeper: the library takes the
 * banner of an SSH server for a session of two weeks.
 */
#define SANE_SESSION_TIMEOUT_MS (60 * 60 * 1000)

/*
 * The library logs the end of a connection just before it reports it through
 * another thread; this much later the log line was about something else.
 */
#define REPORT_MS 1000

/* What a request wants from the server; some go through several steps. */
typedef enum RequestKind
{
	REQUEST_CREATE,
	REQUEST_LIST,
	REQUEST_LIST_AND_WATCH,
	REQUEST_GET,
	REQUEST_GET_AND_WATCH,
	REQUEST_SYNC,
	REQUEST_CHECK,
	REQUEST_NUDGE,				/* an exists whose answer is ignored */
	REQUEST_SET,				/* not repeated */
	REQUEST_ANNOUNCE,			/* a set that is repeated until confirmed */
	REQUEST_DELETE,				/* repeated until confirmed */
	REQUEST_REMOVE,				/* a delete that is not repeated */
	REQUEST_PRUNE,				/* the same, of what is not ours */
	REQUEST_ERASE,				/* list, then DELETE of the child found */
	REQUEST_SWEEP,				/* an exists, then DELETE if it does */
	REQUEST_LISTEN,				/* an exists with a watch, for good */
	REQUEST_LISTEN_GET,			/* second step, if the node is there */
	REQUEST_UNLISTEN,			/* remove that watch, repeated */
	REQUEST_REPLACE_CREATE,		/* first step of a replace, repeated */
	REQUEST_REPLACE_CHECK,		/* second: is the old node still there? */
	REQUEST_REPLACE_DELETE		/* third step, repeated */
} RequestKind;

struct ZkRequest
{
	uintptr_t	id;				/* what the library knows it by */
	ZkClient   *client;
	RequestKind kind;
	ZkNodeKind	node_kind;		/* CREATE */
	int			version;		/* SET and REMOVE: that the node must have */
	bool		done;			/* reply is valid, the main thread owns us */
	bool		unwanted;		/* nobody waits: free when done */
	bool		withdrawn;		/* unwanted, and its node is to be removed */
	bool		came_too_late;	/* REPLACE: the old node was gone before */
	bool		is_outdated;	/* LISTEN: news came after it was sent */
	bool		has_heard;		/* LISTEN: an answer; heard is valid */
	int			news_signal;	/* LISTEN: for the main thread; 0: none */
	int64_t		signalled_mzxid;	/* LISTEN: for which it was sent, or need
									 * not be; 0: none */
	ZkHeard    *heard;			/* LISTEN: NULL: the node is not there */
	int64_t		sent_at;		/* of the last attempt */
	char	   *path;			/* node, or parent for LIST and ERASE */
	char	   *other_path;		/* ERASE: prefix of the child; REPLACE: the
								 * node to go */
	char	   *data;			/* CREATE, REPLACE and SET: node's data */
	int			data_length;
	zoo_op_t	op;				/* CHECK; must outlive the call */
	zoo_op_result_t op_result;
	ZkReply		reply;
	char	   *reply_path;		/* what the reply's pointers point to */
	char	   *reply_data;
	char	  **reply_children; /* one block with its strings */
};

struct ZkClient
{
	zhandle_t  *zh;				/* NULL until the names are resolved */
	pid_t		pid;			/* a forked child must not use zh */
	int			references;		/* main thread, resolver, closer */
	ZkClientStatus status;		/* all but npending, which is counted here */
	int			npending;
	bool		is_silence_news;	/* wake the main thread when it gets 0 */
	int			nwithdrawn;		/* of these, how many undo a create */
	pthread_cond_t changed;		/* npending fell, or closed was set */
	bool		closed;			/* the library's part is over */
	int			asked_timeout_ms;
	unsigned	first_server;
	char	   *auth_scheme;	/* NULL: none */
	char	   *auth_credentials;
	bool		is_auth_private;
	bool		auth_stored;	/* the library will present it */
	pthread_t	main_thread;	/* whom loss_signal is for */
	int			loss_signal;	/* sent when the session is lost; 0: none */
	timer_t		loss_timer;		/* sends it at status.lost_deadline */
	bool		has_loss_timer;
	bool		is_loss_timer_set;
	bool		is_signal_deferred; /* that of a node listened for */
	char	   *watch_path;		/* the one watched node, or NULL */
	ZkWatchNews watch_news;		/* of it */
	ZkClientTicket ticket;		/* valid if status.was_connected or is_taken_over */
	bool		is_taken_over;	/* the session was another process's */
	bool		resolved;		/* addresses are valid */
	ServerList	servers;
	ServerAddresses addresses;
};

/* Protects all that follows, every ZkClient and every ZkRequest. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/*
 * Live requests by slot; a request's id is its generation in the high bits and
 * its slot in the low ones, so that a stale id finds nothing.
 */
#define SLOT_BITS 16
#define SLOT_MASK (((uintptr_t) 1 << SLOT_BITS) - 1)
static ZkRequest **slots;
static uintptr_t nslots;
static uintptr_t next_slot;		/* where to look for a free one first */
static uintptr_t generation;

/*
 * Sessions that are being closed in the background.  No new handle is made
 * meanwhile: the library has process-wide buffers and was not written for two
 * handles at a time (ZOOKEEPER-4810).
 */
static int	nclosing;

/* How deep a thread is in block_signals(), and its mask before the first. */
static __thread int block_depth;
static __thread sigset_t unblocked;

/* The descriptor that wakes the main thread, made once. */
static int	wake_fd = -1;

/* The last error line; the library's log callback has no context argument. */
static pthread_mutex_t log_mutex = PTHREAD_MUTEX_INITIALIZER;
static char last_error[512];

/*
 * The socket of the connection and what is known of its end.  There is one for
 * the process: no two handles are in use at a time.  With log_mutex.
 */
static struct
{
	int			fd;				/* -1: not known */
	ino_t		inode;			/* of the socket, for the fd may be reused */
	int64_t		suspended_ms;	/* how long the machine was suspended before */
	int64_t		ended_at;		/* when the library gave it up; 0: never */
	bool		was_silent;		/* and whether for silence */
	int64_t		contact_at;		/* when it last received; 0: not known */
}			connection = {.fd = -1};

/* The ACL of our nodes when there are credentials; see acl_of(). */
static struct ACL owner_and_readers[2];
static struct ACL_vector guarded_acl = {2, owner_and_readers};

static bool note_watch(ZkClient *client, const char *path);
static ZkRequest *begin_completion(const void *data, int rc);
static void end_completion(ZkRequest *request);
static bool is_followed_by_list(const ZkRequest *request);
static bool take_next_step(ZkRequest *request);
static bool undo(ZkRequest *request);
static bool become_delete_of_child(ZkRequest *request);
static void note_heard(ZkRequest *request);
static void signal_news(ZkRequest *request);
static bool copy_children(ZkRequest *request,
						  const struct String_vector *strings);
static void create_done(int rc, const char *value, const struct Stat *stat,
						const void *data);
static void list_done(int rc, const struct String_vector *strings,
					  const void *data);
static void get_done(int rc, const char *value, int length,
					 const struct Stat *stat, const void *data);
static void stat_done(int rc, const struct Stat *stat, const void *data);
static void string_done(int rc, const char *value, const void *data);
static void void_done(int rc, const void *data);
static void session_event(zhandle_t *zh, int type, int state,
						  const char *path, void *context);
static void note_connected(ZkClient *client, zhandle_t *zh, int state);
static void note_disconnected(ZkClient *client);
static void note_lost(ZkClient *client, ZkClientLoss loss);
static void node_event(zhandle_t *zh, int type, int state,
					   const char *path, void *context);
static void heard_event(zhandle_t *zh, int type, int state,
						const char *path, void *context);
static ZkRequest *listening_for(const ZkClient *client, const char *path);
static void log_line(const char *message);
static int64_t suspended_ms(void);
static int64_t last_contact(void);
static void find_connection(zhandle_t *zh);
static void block_signals(void);
static void restore_signals(void);
static void lock_mutex(void);
static void unlock_mutex(void);
static void wake(void);
static void set_error(const char *format,...)
			__attribute__((format(printf, 1, 2)));
static void move_to(ZkClient *client, ZkClientState state, ZkClientLoss loss);
static void set_loss_timer(ZkClient *client);
static bool start_thread(void *(*function) (void *), void *argument,
						 pthread_t *thread);
static bool can_start_two_threads(void);
static void *resolve_in_thread(void *argument);
static void connect_client(ZkClient *client);
static int	count_addresses(const ZkClient *client);
static void rotate_addresses(char *list, unsigned first);
static bool is_auth_stored(ZkClient *client);
static bool store_auth(ZkClient *client, zhandle_t *zh);
static struct timespec monotonic_in(int ms);
static void *close_in_thread(void *argument);
static void close_handle(ZkClient *client);
static void unreference(ZkClient *client);
static ZkRequest *any_request_of(ZkClient *client);
static ZkRequest *new_request(ZkClient *client, RequestKind kind,
							  const char *path, const char *other_path,
							  const char *data, int length);
static bool register_request(ZkRequest *request);
static void free_request(ZkRequest *request);
static void submit(ZkRequest *request);
static ZkRequest *start_request(ZkClient *client, RequestKind kind,
								ZkNodeKind node_kind, const char *path,
								const char *other_path,
								const char *data, int length, int version);
static ZkRequest *start_read(ZkClient *client, RequestKind kind,
							 const char *path);
static bool start_unwanted(ZkClient *client, RequestKind kind,
						   const char *path, const char *data, int length);
static void send_request(ZkRequest *request);
static const struct ACL_vector *acl_of(const ZkRequest *request);
static void prepare_guarded_acl(void);
static int	flags_of(ZkNodeKind kind);
static ZkResult result_of_code(int rc);

/* ---------------------------------------------------------------------
 * Public functions: clock, wake-up, session
 * ---------------------------------------------------------------------
 */

/*
 * CLOCK_BOOTTIME, because leases go on running while the machine is suspended.
 */
int64_t
zklock_client_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	return (int64_t) now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int
zklock_client_wake_fd(void)
{
	if (wake_fd < 0)
		wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	return wake_fd;
}

void
zklock_client_drain_wake_fd(void)
{
	uint64_t	count;

	if (read(wake_fd, &count, sizeof(count)) < 0)
	{
		/* nothing to read: as good */
	}
}

ZkClient *
zklock_client_open(const ZkClientOptions *options)
{
	ZkClient   *client = calloc(1, sizeof(*client));
	pthread_condattr_t monotonic;
	pthread_t	thread;
	bool		connect;

	if (client == NULL)
		return NULL;
	client->pid = getpid();
	client->references = 1;
	client->servers = *options->servers;
	client->asked_timeout_ms = options->session_timeout_ms;
	client->first_server = options->first_server;
	client->status.state = ZK_CLIENT_STARTING;
	prepare_guarded_acl();
	client->main_thread = pthread_self();
	if (options->take_over != NULL)
	{
		client->ticket = *options->take_over;
		client->is_taken_over = true;
	}
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&client->changed, &monotonic);
	pthread_condattr_destroy(&monotonic);
	set_error("%s", "");
	if (options->auth_scheme != NULL)
	{
		client->is_auth_private = options->is_auth_private;
		client->auth_scheme = strdup(options->auth_scheme);
		client->auth_credentials = strdup(options->auth_credentials);
		if (client->auth_scheme == NULL || client->auth_credentials == NULL)
		{
			unreference(client);
			return NULL;
		}
	}

	if (servers_all_numeric(&client->servers))
	{
		servers_resolve(&client->servers, &client->addresses);
		lock_mutex();
		client->resolved = true;
		connect = nclosing == 0;
		unlock_mutex();
		if (connect)
			connect_client(client);
		return client;
	}

	lock_mutex();
	client->references++;
	unlock_mutex();
	if (!start_thread(resolve_in_thread, client, &thread))
	{
		set_error("Could not create a thread: %s", strerror(errno));
		lock_mutex();
		client->references--;
		move_to(client, ZK_CLIENT_LOST, ZK_LOSS_RESOURCES);
		unlock_mutex();
	}
	else
		pthread_detach(thread);
	return client;
}

void
zklock_client_report_silence(ZkClient *client, bool is_wanted)
{

	lock_mutex();
	client->is_silence_news = is_wanted;
	unlock_mutex();
}

void
zklock_client_status(ZkClient *client, ZkClientStatus *status)
{
	bool		connect;
	bool		auth_missing;

	lock_mutex();
	connect = client->resolved && client->zh == NULL && nclosing == 0 &&
		client->status.state == ZK_CLIENT_STARTING;
	if (client->status.state == ZK_CLIENT_SUSPENDED &&
		zklock_client_now() >= client->status.lost_deadline)
		move_to(client, ZK_CLIENT_LOST, ZK_LOSS_SILENCE);
	auth_missing = client->zh != NULL && !client->auth_stored;
	if (connect || auth_missing)
	{
		unlock_mutex();
		if (connect)
			connect_client(client);
		else
			store_auth(client, client->zh);
		lock_mutex();
	}
	*status = client->status;
	status->npending = client->npending;
	status->nwithdrawn = client->nwithdrawn;

	/* requests that overtake the credentials would be refused */
	if (client->zh != NULL && !client->auth_stored &&
		status->state != ZK_CLIENT_LOST)
		status->state = ZK_CLIENT_STARTING;
	unlock_mutex();
}

bool
zklock_client_ticket(ZkClient *client, ZkClientTicket *ticket)
{
	bool		is_valid;

	lock_mutex();
	is_valid = client->status.was_connected;
	*ticket = client->ticket;
	unlock_mutex();
	return is_valid;
}

bool
zklock_client_signal_loss(ZkClient *client, int signal)
{
	struct sigevent event = {0};
	bool		has_timer;

	lock_mutex();
	if (signal != 0 && !client->has_loss_timer)
	{
		event.sigev_notify = SIGEV_SIGNAL;
		event.sigev_signo = signal;
		client->has_loss_timer =
			timer_create(CLOCK_BOOTTIME, &event, &client->loss_timer) == 0;
	}
	has_timer = client->has_loss_timer;
	client->loss_signal = signal;
	set_loss_timer(client);
	if (signal != 0 && client->status.state == ZK_CLIENT_LOST)
		pthread_kill(client->main_thread, signal);	/* it came first */
	unlock_mutex();
	return has_timer || signal == 0;
}

void
zklock_client_last_error(ZkClient *client, char *text, size_t size)
{

	block_signals();
	pthread_mutex_lock(&log_mutex);
	snprintf(text, size, "%s",
			 client->addresses.error[0] != '\0' && client->resolved ?
			 client->addresses.error : last_error);
	pthread_mutex_unlock(&log_mutex);
	restore_signals();
}

void
zklock_client_close(ZkClient *client, int wait_ms)
{
	pthread_t	thread;
	struct timespec deadline;

	if (client->pid != getpid())
		return;					/* the parent's session, not ours to close */

	zklock_client_signal_loss(client, 0);
	lock_mutex();
	client->references++;
	nclosing++;
	unlock_mutex();
	if (start_thread(close_in_thread, client, &thread))
	{
		pthread_detach(thread);
		deadline = monotonic_in(wait_ms);
		lock_mutex();
		while (!client->closed &&
			   pthread_cond_timedwait(&client->changed, &mutex,
									  &deadline) == 0)
			;
		unlock_mutex();
	}
	else
	{
		/* no thread to be had: seconds of waiting at worst, if it is silent */
		block_signals();
		close_handle(client);
		restore_signals();
		unreference(client);
	}
	unreference(client);
}

const char *
zklock_client_library_version(void)
{
	return ZOO_VERSION;
}

const char *
zklock_client_code_text(int code)
{
	return zerror(code);
}

/* ---------------------------------------------------------------------
 * Public functions: requests
 * ---------------------------------------------------------------------
 */

ZkRequest *
zklock_client_create(ZkClient *client, const char *path, ZkNodeKind kind,
					 const char *data, int length)
{
	return start_request(client, REQUEST_CREATE, kind, path, NULL,
						 data, length, ZK_ANY_VERSION);
}

ZkRequest *
zklock_client_list(ZkClient *client, const char *path)
{
	return start_read(client, REQUEST_LIST, path);
}

ZkRequest *
zklock_client_get(ZkClient *client, const char *path)
{
	return start_read(client, REQUEST_GET, path);
}

ZkRequest *
zklock_client_sync(ZkClient *client, const char *path)
{
	return start_read(client, REQUEST_SYNC, path);
}

ZkRequest *
zklock_client_check(ZkClient *client, const char *path)
{
	return start_read(client, REQUEST_CHECK, path);
}

/*
 * One watcher function with one context serves every watch of the session: the
 * library keeps a watch per (function, context), so that contexts of given-up
 * waits would pile up until their node goes.  Which node is of interest is
 * kept here; an event of any other node, left over from a wait that was given
 * up, wakes nobody.
 */
ZkRequest *
zklock_client_get_and_watch(ZkClient *client, const char *path)
{
	return note_watch(client, path) ?
		start_read(client, REQUEST_GET_AND_WATCH, path) : NULL;
}

ZkRequest *
zklock_client_list_and_watch(ZkClient *client, const char *path)
{
	return note_watch(client, path) ?
		start_read(client, REQUEST_LIST_AND_WATCH, path) : NULL;
}

/* From now on only this path's events are news; false without memory. */
static bool
note_watch(ZkClient *client, const char *path)
{
	char	   *watch_path = strdup(path);

	if (watch_path == NULL)
		return false;
	lock_mutex();
	free(client->watch_path);
	client->watch_path = watch_path;
	client->watch_news = ZK_WATCH_QUIET;
	unlock_mutex();
	return true;
}

ZkWatchNews
zklock_client_watch_news(ZkClient *client)
{
	ZkWatchNews news;

	lock_mutex();
	news = client->watch_news;
	unlock_mutex();
	return news;
}

ZkRequest *
zklock_client_replace(ZkClient *client, const char *from, const char *to,
					  const char *data, int length)
{
	return start_request(client, REQUEST_REPLACE_CREATE, ZK_EPHEMERAL, to, from,
						 data, length, ZK_ANY_VERSION);
}

ZkRequest *
zklock_client_remove(ZkClient *client, const char *path, int version)
{
	return start_request(client, REQUEST_REMOVE, ZK_PERSISTENT, path, NULL,
						 NULL, 0, version);
}

ZkRequest *
zklock_client_set(ZkClient *client, const char *path, const char *data,
				  int length, int version)
{
	return start_request(client, REQUEST_SET, ZK_PERSISTENT, path, NULL,
						 data, length, version);
}

const ZkReply *
zklock_client_reply(ZkRequest *request)
{
	bool		done;

	lock_mutex();
	done = request->done;
	unlock_mutex();
	return done ? &request->reply : NULL;
}

void
zklock_client_free(ZkRequest *request)
{
	bool		done;

	if (request == NULL)
		return;
	lock_mutex();
	done = request->done;
	request->unwanted = true;
	if (done && request->kind == REQUEST_LISTEN &&
		listening_for(request->client, request->path) == NULL)
	{
		request->kind = REQUEST_UNLISTEN;
		request->done = false;
		done = false;
		pthread_mutex_unlock(&mutex);
		submit(request);
	}
	else
		pthread_mutex_unlock(&mutex);
	if (done)
		free_request(request);
	restore_signals();
}

void
zklock_client_withdraw(ZkRequest *request)
{
	ZkClient   *client;
	char	   *to = NULL;
	bool		done;

	if (request == NULL)
		return;
	lock_mutex();
	client = request->client;
	done = request->done;
	request->unwanted = true;
	request->withdrawn = true;
	client->nwithdrawn++;
	if (!done && (request->kind == REQUEST_REPLACE_CREATE ||
				  request->kind == REQUEST_REPLACE_CHECK ||
				  request->kind == REQUEST_REPLACE_DELETE))
		to = strdup(request->path);
	unlock_mutex();
	if (!done)
	{
		/*
		 * Its completion does the rest.  A replace names its node, so that
		 * the delete can go out at once: what this session asks next will
		 * not find the node any more.
		 */
		if (to != NULL)
			zklock_client_delete(client, to);
		free(to);
		return;
	}

	/*
	 * The request becomes the delete of what it made, as it would have in its
	 * completion.
	 */
	lock_mutex();
	request->done = !undo(request);
	done = request->done;
	if (done)
		client->nwithdrawn--;
	unlock_mutex();
	if (done)
		free_request(request);
	else
		submit(request);
}

bool
zklock_client_delete(ZkClient *client, const char *path)
{
	return start_unwanted(client, REQUEST_DELETE, path, NULL, 0);
}

ZkRequest *
zklock_client_prune(ZkClient *client, const char *path)
{
	return start_read(client, REQUEST_PRUNE, path);
}

void
zklock_client_begin_many(void)
{
	block_signals();
}

void
zklock_client_end_many(void)
{
	restore_signals();
}

bool
zklock_client_hand_over(ZkClient *client, const char *path)
{
	start_unwanted(client, REQUEST_SET, path, NULL, 0);
	return zklock_client_delete(client, path);
}

bool
zklock_client_announce(ZkClient *client, const char *path,
					   const char *data, int length)
{
	return start_unwanted(client, REQUEST_ANNOUNCE, path, data, length);
}

void
zklock_client_nudge(ZkClient *client)
{
	start_unwanted(client, REQUEST_NUDGE, "/", NULL, 0);
}

/*
 * One request, which never ends as long as it is wanted: its watch's event
 * sends it again, see heard_event().
 */
ZkRequest *
zklock_client_listen(ZkClient *client, const char *path, int signal,
					 int64_t known)
{
	ZkRequest  *request;

	block_signals();
	request = new_request(client, REQUEST_LISTEN, path, NULL, NULL, 0);
	if (request != NULL)
	{
		request->news_signal = signal;
		request->signalled_mzxid = known;
		submit(request);
	}
	restore_signals();
	return request;
}

bool
zklock_client_heard(ZkRequest *listening, ZkHeard *heard)
{
	bool		has_heard;

	lock_mutex();
	has_heard = listening->has_heard;
	if (has_heard && listening->heard != NULL)
		*heard = *listening->heard;
	else if (has_heard)
		heard->is_present = false;
	unlock_mutex();
	return has_heard;
}

void
zklock_client_defer_signals(ZkClient *client, bool is_deferred)
{
	lock_mutex();
	client->is_signal_deferred = is_deferred;
	for (uintptr_t i = 0; i < nslots && !is_deferred; i++)
		if (slots[i] != NULL && slots[i]->client == client)
			signal_news(slots[i]);
	unlock_mutex();
}

void
zklock_client_sweep(ZkClient *client, const char *path)
{
	start_unwanted(client, REQUEST_SWEEP, path, NULL, 0);
}

/* ---------------------------------------------------------------------
 * Callbacks of the library
 *
 * All but log_line() run in its completion thread, in the order in which the
 * server's answers came.
 * ---------------------------------------------------------------------
 */

/*
 * Find the request that an answer is for and note what every answer tells.
 * NULL if there is none.  Returns with the mutex held, except for NULL.
 */
static ZkRequest *
begin_completion(const void *data, int rc)
{
	uintptr_t	id = (uintptr_t) data;
	uintptr_t	slot = id & SLOT_MASK;
	ZkRequest  *request;

	pthread_mutex_lock(&mutex);
	request = slot < nslots ? slots[slot] : NULL;
	if (request == NULL || request->id != id)
	{
		pthread_mutex_unlock(&mutex);
		return NULL;
	}
	request->reply.code = rc;
	request->reply.result = result_of_code(rc);
	request->reply.sent_at = request->sent_at;
	return request;
}

/* Decide what follows from an answer, release the mutex, and do it. */
static void
end_completion(ZkRequest *request)
{
	bool		again = take_next_step(request);
	bool		unwanted = request->unwanted;
	bool		news = !unwanted && !is_followed_by_list(request);

	if (again)
		request->sent_at = zklock_client_now();
	else
	{
		if (request->withdrawn && --request->client->nwithdrawn == 0)
			news = true;
		request->done = true;
		if (--request->client->npending == 0 &&
			request->client->is_silence_news)
			news = true;
		pthread_cond_broadcast(&request->client->changed);
	}
	pthread_mutex_unlock(&mutex);

	/*
	 * From here on a request that is done and wanted is the main thread's and
	 * must not be touched.  One to be sent again is still ours.
	 */
	if (again)
		send_request(request);
	else if (unwanted)
		free_request(request);
	if (news)
		wake();
}

/* A contender's create wakes nobody: the list behind it will. */
static bool
is_followed_by_list(const ZkRequest *request)
{
	return request->kind == REQUEST_CREATE &&
		request->node_kind == ZK_EPHEMERAL_SEQUENTIAL;
}

/*
 * With the mutex held: what does the answer in request->reply lead to?  true
 * if the request, changed as need be, is to be sent once more.
 */
static bool
take_next_step(ZkRequest *request)
{
	ZkResult	result = request->reply.result;

	switch (request->kind)
	{
		case REQUEST_CREATE:
			return request->withdrawn && undo(request);

		case REQUEST_LIST:
		case REQUEST_LIST_AND_WATCH:
		case REQUEST_GET:
		case REQUEST_GET_AND_WATCH:
		case REQUEST_SYNC:
		case REQUEST_CHECK:
		case REQUEST_NUDGE:
		case REQUEST_SET:		/* hand-over's delete does without */
		case REQUEST_REMOVE:
		case REQUEST_PRUNE:
			return false;

		case REQUEST_ANNOUNCE:
			return result == ZK_UNKNOWN_OUTCOME;

		case REQUEST_DELETE:
			if (result != ZK_OK && result != ZK_NO_NODE &&
				result != ZK_SESSION_LOST && result != ZK_UNKNOWN_OUTCOME)
				set_error("Could not delete znode \"%s\": %s", request->path,
						  zerror(request->reply.code));
			if (result == ZK_UNKNOWN_OUTCOME)
				return true;
			if (request->came_too_late)
				request->reply.result = ZK_NO_NODE;
			return false;

		case REQUEST_ERASE:
			if (result == ZK_UNKNOWN_OUTCOME)
				return true;
			return result == ZK_OK && become_delete_of_child(request);

		case REQUEST_SWEEP:
			request->kind = result == ZK_OK ? REQUEST_DELETE : REQUEST_SWEEP;
			return result == ZK_OK || result == ZK_UNKNOWN_OUTCOME;

		case REQUEST_LISTEN:
		case REQUEST_LISTEN_GET:
			if (result == ZK_UNKNOWN_OUTCOME)
			{
				/* the watch, if there was one, went with the connection */
				request->kind = REQUEST_LISTEN;
				return !request->unwanted;
			}
			if (result == ZK_SESSION_LOST)
				return false;
			if (request->unwanted)
			{
				request->kind = REQUEST_UNLISTEN;
				return listening_for(request->client,
									 request->path) == NULL;
			}
			if (request->kind == REQUEST_LISTEN && result == ZK_OK)
			{
				request->kind = REQUEST_LISTEN_GET;
				return true;
			}

			/* an event from before this answer: what it told may be old */
			if ((request->kind == REQUEST_LISTEN_GET &&
				 result == ZK_NO_NODE) || request->is_outdated)
			{
				request->is_outdated = false;
				request->kind = REQUEST_LISTEN;
				return true;
			}
			request->kind = REQUEST_LISTEN;
			note_heard(request);
			signal_news(request);
			return false;

		case REQUEST_UNLISTEN:	/* if there was no watch, all the better */
			return result == ZK_UNKNOWN_OUTCOME &&
				listening_for(request->client, request->path) == NULL;

		case REQUEST_REPLACE_CREATE:
			if (result == ZK_UNKNOWN_OUTCOME && !request->withdrawn)
				return true;
			if (result != ZK_OK && result != ZK_NODE_EXISTS &&
				result != ZK_UNKNOWN_OUTCOME)
				return false;
			request->kind = request->withdrawn ? REQUEST_DELETE :
				REQUEST_REPLACE_CHECK;
			return true;

		case REQUEST_REPLACE_CHECK:

			/*
			 * Both nodes at one time: nobody can have been let in between.  If
			 * the old one had been deleted before the new one was there, the
			 * new one must not stand ahead of who was.
			 */
			if (result == ZK_UNKNOWN_OUTCOME && !request->withdrawn)
				return true;
			if (result == ZK_SESSION_LOST)
				return false;
			request->came_too_late = result == ZK_NO_NODE;
			request->kind = result == ZK_OK && !request->withdrawn ?
				REQUEST_REPLACE_DELETE : REQUEST_DELETE;
			return true;

		case REQUEST_REPLACE_DELETE:
			if (result == ZK_UNKNOWN_OUTCOME)
				return true;
			if (result == ZK_NO_NODE)
				request->reply.result = ZK_OK;
			return request->withdrawn && undo(request);
	}
	return false;
}

/*
 * With the mutex held: keep what an answered LISTEN tells.  An answer that is no
 * answer leaves what was known; so does a lack of memory.
 */
static void
note_heard(ZkRequest *request)
{
	const ZkReply *reply = &request->reply;

	if (reply->result == ZK_NO_NODE)
	{
		free(request->heard);
		request->heard = NULL;
		request->has_heard = true;
	}
	if (reply->result != ZK_OK)
		return;
	if (request->heard == NULL)
		request->heard = calloc(1, sizeof(*request->heard));
	if (request->heard == NULL)
		return;
	request->heard->is_present = true;
	request->heard->mzxid = reply->mzxid;
	request->heard->mtime_ms = reply->mtime_ms;
	request->heard->data_length = request->reply_data == NULL ? 0 :
		reply->data_length < ZK_HEARD_SIZE ? reply->data_length : ZK_HEARD_SIZE;
	if (request->heard->data_length > 0)
		memcpy(request->heard->data, request->reply_data,
			   request->heard->data_length);
	if (request->signalled_mzxid != reply->mzxid)
		request->heard->signalled_at = 0;
	request->has_heard = true;
}

/*
 * With the mutex held: interrupt the main thread for what a LISTEN has heard,
 * once for each change.
 */
static void
signal_news(ZkRequest *request)
{
	if (request->news_signal == 0 || request->unwanted ||
		request->client->is_signal_deferred || request->heard == NULL ||
		request->heard->mzxid == request->signalled_mzxid)
		return;
	request->signalled_mzxid = request->heard->mzxid;
	request->heard->signalled_at = zklock_client_now();
	pthread_kill(request->client->main_thread, request->news_signal);
}

/*
 * With the mutex held: turn an answered create or replace into the request
 * that removes what it made.  false if there is nothing to remove.
 *
 * After a lost reply the node may exist or not, and we do not know its
 * number: look for its GUID.  A create that the server executes later still,
 * when it wakes up, is ahead of our list: both belong to one session, and
 * reconnecting closed the connection that brought the create.
 */
static bool
undo(ZkRequest *request)
{
	ZkResult	result = request->reply.result;
	char	   *made = request->reply_path;
	char	   *slash;

	if (request->kind == REQUEST_REPLACE_DELETE)
	{
		request->kind = REQUEST_DELETE; /* of request->path, the new node */
		return true;
	}
	if (request->kind != REQUEST_CREATE)
		return false;
	if (result == ZK_OK && made != NULL)
	{
		free(request->path);
		request->path = made;
		request->reply_path = NULL;
		request->kind = REQUEST_DELETE;
		return true;
	}
	slash = strrchr(request->path, '/');
	if (result != ZK_UNKNOWN_OUTCOME || slash == NULL || slash == request->path)
		return false;
	request->other_path = strdup(slash + 1);
	if (request->other_path == NULL)
		return false;			/* the end of the session removes it */
	*slash = '\0';
	request->kind = REQUEST_ERASE;
	return true;
}

/*
 * With the mutex held: turn an answered ERASE into the delete of the child
 * that carries the prefix.  false if there is none.
 */
static bool
become_delete_of_child(ZkRequest *request)
{
	const char *child = NULL;
	char	   *path;
	size_t		size;

	for (int i = 0; i < request->reply.nchildren && child == NULL; i++)
		if (strncmp(request->reply.children[i], request->other_path,
					strlen(request->other_path)) == 0)
			child = request->reply.children[i];
	if (child == NULL)
		return false;
	size = strlen(request->path) + 1 + strlen(child) + 1;
	path = malloc(size);
	if (path == NULL)
		return false;			/* the end of the session removes it */
	snprintf(path, size, "%s/%s", request->path, child);
	free(request->path);
	request->path = path;
	request->kind = REQUEST_DELETE;
	return true;
}

static void
copy_stat(ZkReply *reply, const struct Stat *stat)
{
	reply->czxid = stat->czxid;
	reply->ephemeral_owner = stat->ephemeralOwner;
	reply->ctime_ms = stat->ctime;
	reply->mzxid = stat->mzxid;
	reply->mtime_ms = stat->mtime;
	reply->version = stat->version;
}

static void
create_done(int rc, const char *value, const struct Stat *stat,
			const void *data)
{
	ZkRequest  *request = begin_completion(data, rc);

	if (request == NULL)
		return;
	if (rc == ZOK && value != NULL)
	{
		request->reply_path = strdup(value);
		request->reply.path = request->reply_path;
		if (request->reply_path == NULL)
			request->reply.result = ZK_UNKNOWN_OUTCOME; /* found by its GUID */
	}
	if (rc == ZOK && stat != NULL)
		copy_stat(&request->reply, stat);
	end_completion(request);
}

static void
list_done(int rc, const struct String_vector *strings, const void *data)
{
	ZkRequest  *request = begin_completion(data, rc);

	if (request == NULL)
		return;
	if (rc == ZOK && !copy_children(request, strings))
		request->reply.result = ZK_NO_MEMORY;
	end_completion(request);
}

/* Copy a list into one block: the pointers, then the strings. */
static bool
copy_children(ZkRequest *request, const struct String_vector *strings)
{
	int			count = strings != NULL ? strings->count : 0;
	size_t		size = (size_t) count * sizeof(char *) + 1;
	char	  **children;
	char	   *next;

	for (int i = 0; i < count; i++)
		size += strlen(strings->data[i]) + 1;
	children = malloc(size);
	if (children == NULL)
		return false;
	next = (char *) (children + count);
	for (int i = 0; i < count; i++)
	{
		size_t		length = strlen(strings->data[i]) + 1;

		children[i] = memcpy(next, strings->data[i], length);
		next += length;
	}
	free(request->reply_children);
	request->reply_children = children;
	request->reply.children = (const char *const *) children;
	request->reply.nchildren = count;
	return true;
}

static void
get_done(int rc, const char *value, int length, const struct Stat *stat,
		 const void *data)
{
	ZkRequest  *request = begin_completion(data, rc);

	if (request == NULL)
		return;
	if (rc == ZOK && stat != NULL)
		copy_stat(&request->reply, stat);
	free(request->reply_data);	/* of a LISTEN's last time */
	request->reply_data = NULL;
	if (rc == ZOK && value != NULL && length > 0)
	{
		request->reply_data = malloc(length);
		if (request->reply_data != NULL)
		{
			memcpy(request->reply_data, value, length);
			request->reply.data = request->reply_data;
			request->reply.data_length = length;
		}
	}
	end_completion(request);
}

/* An exists or a set: what it says of the node is not of interest. */
static void
stat_done(int rc, const struct Stat *stat, const void *data)
{
	(void) stat;
	void_done(rc, data);
}

/* A sync; the one that an ERASE sends ahead of its list has the id 0. */
static void
string_done(int rc, const char *value, const void *data)
{
	(void) value;
	void_done(rc, data);
}

static void
void_done(int rc, const void *data)
{
	ZkRequest  *request = begin_completion(data, rc);

	if (request != NULL)
		end_completion(request);
}

/*
 * The session's state changed.  May run before zookeeper_init() has returned,
 * so the handle is the argument, not client->zh.
 */
static void
session_event(zhandle_t *zh, int type, int state, const char *path,
			  void *context)
{
	ZkClient   *client = context;

	(void) path;
	if (type != ZOO_SESSION_EVENT)
		return;
	if (state == ZOO_CONNECTED_STATE || state == ZOO_READONLY_STATE)
		note_connected(client, zh, state);
	else if (state == ZOO_EXPIRED_SESSION_STATE)
		note_lost(client, ZK_LOSS_EXPIRED);
	else if (state == ZOO_AUTH_FAILED_STATE)
		note_lost(client, ZK_LOSS_AUTH);
	else
		note_disconnected(client);
	if (!is_auth_stored(client))
		store_auth(client, zh);
	wake();
}

static void
note_connected(ZkClient *client, zhandle_t *zh, int state)
{
	int			timeout = zoo_recv_timeout(zh);
	int			most = client->asked_timeout_ms > SANE_SESSION_TIMEOUT_MS ?
		client->asked_timeout_ms : SANE_SESSION_TIMEOUT_MS;
	const clientid_t *id = zoo_client_id(zh);
	const char *server = zoo_get_current_server(zh);

	find_connection(zh);
	pthread_mutex_lock(&mutex);
	if (client->status.state == ZK_CLIENT_SUSPENDED &&
		client->loss_signal != 0 &&
		zklock_client_now() >= client->status.lost_deadline)
	{
		/*
		 * Too late: whoever was to be interrupted by the loss has been.
		 * Without such a promise the server may take the session back after
		 * the deadline: it knows better than our clock.
		 */
		move_to(client, ZK_CLIENT_LOST, ZK_LOSS_SILENCE);
	}
	else if (state != ZOO_CONNECTED_STATE || timeout <= 0 || timeout > most)
	{
		set_error("The peer granted a session timeout of %d ms in state %d",
				  timeout, state);
		move_to(client, ZK_CLIENT_LOST, ZK_LOSS_PROTOCOL);
	}
	else
	{
		client->status.session_id = id->client_id;
		client->ticket.session_id = id->client_id;
		memcpy(client->ticket.password, id->passwd, sizeof(id->passwd));
		client->status.session_timeout_ms = timeout;
		snprintf(client->status.server, sizeof(client->status.server), "%s",
				 server != NULL ? server : "");
		move_to(client, ZK_CLIENT_CONNECTED, ZK_LOSS_NONE);
		client->status.was_connected = true;
	}
	pthread_mutex_unlock(&mutex);
}

static void
note_lost(ZkClient *client, ZkClientLoss loss)
{
	pthread_mutex_lock(&mutex);
	move_to(client, ZK_CLIENT_LOST, loss);
	pthread_mutex_unlock(&mutex);
}

/*
 * The connection is gone; how long may the session live?  The ensemble ends it
 * one session timeout (T) after it last heard of us.  We know when we last
 * heard of the ensemble; if not, the library gives a silent connection up after
 * 2/3 T, and one that was reset had its last heartbeat at most T/3 ago.  A
 * tenth of T, at least 200 ms, goes to clocks and rounding.
 *
 * Where the loss interrupts nobody there is nothing to be early for.  The
 * library gives a server that does not answer a reconnect 2/3 T, so the full T
 * leaves room for one more.
 */
static void
note_disconnected(ZkClient *client)
{
	int64_t		now = zklock_client_now();
	int64_t		contact_at = 0;
	bool		was_silent = false;
	int			timeout;

	pthread_mutex_lock(&log_mutex);
	if (now - connection.ended_at < REPORT_MS)
	{
		contact_at = connection.contact_at;
		was_silent = connection.was_silent;
	}
	pthread_mutex_unlock(&log_mutex);

	pthread_mutex_lock(&mutex);
	if (client->status.state == ZK_CLIENT_CONNECTED)
	{
		timeout = client->status.session_timeout_ms;
		if (contact_at == 0)
			contact_at = now - (was_silent ? timeout * 2 / 3 : timeout / 3);
		client->status.suspended_at = now;
		client->status.lost_deadline = client->loss_signal == 0 ?
			now + timeout :
			contact_at + timeout - (timeout / 10 > 200 ? timeout / 10 : 200);
		move_to(client, ZK_CLIENT_SUSPENDED, ZK_LOSS_NONE);
	}
	pthread_mutex_unlock(&mutex);
}

/*
 * Something happened to a node that is or was watched.  Session events reach
 * every watcher too, without using up the watch: session_event() has them.
 */
static void
node_event(zhandle_t *zh, int type, int state, const char *path, void *context)
{
	ZkClient   *client = context;
	bool		is_news = false;

	(void) zh;
	(void) state;
	if (type == ZOO_SESSION_EVENT || path == NULL)
		return;
	pthread_mutex_lock(&mutex);
	if (client->watch_path != NULL && strcmp(client->watch_path, path) == 0)
	{
		is_news = true;
		client->watch_news = type == ZOO_CHANGED_EVENT &&
			client->watch_news != ZK_WATCH_LOOK_AGAIN ?
			ZK_WATCH_SET : ZK_WATCH_LOOK_AGAIN;
	}
	pthread_mutex_unlock(&mutex);
	if (is_news)
		wake();
}

/*
 * Something happened to a node that is listened for: look at it again.  Its watch
 * is used up.
 */
static void
heard_event(zhandle_t *zh, int type, int state, const char *path,
			void *context)
{
	ZkClient   *client = context;
	ZkRequest  *request;
	bool		again;

	(void) zh;
	(void) state;
	if (type == ZOO_SESSION_EVENT || path == NULL)
		return;
	pthread_mutex_lock(&mutex);
	request = listening_for(client, path);
	again = request != NULL && request->done;
	if (again)
	{
		request->done = false;
		request->sent_at = zklock_client_now();
		client->npending++;
	}
	else if (request != NULL)
		request->is_outdated = true;
	pthread_mutex_unlock(&mutex);
	if (again)
		send_request(request);
}

/*
 * With the mutex held: the request that listens for the path and is wanted, or
 * NULL.  While there is one the watch is its, whoever has set it.
 */
static ZkRequest *
listening_for(const ZkClient *client, const char *path)
{
	for (uintptr_t i = 0; i < nslots; i++)
		if (slots[i] != NULL && slots[i]->client == client &&
			!slots[i]->unwanted &&
			(slots[i]->kind == REQUEST_LISTEN ||
			 slots[i]->kind == REQUEST_LISTEN_GET) &&
			strcmp(slots[i]->path, path) == 0)
			return slots[i];
	return NULL;
}

/*
 * A line of the library's log, from any thread and perhaps with its locks
 * held: keep what follows "ZOO_ERROR@function@line: ".
 */
static void
log_line(const char *message)
{
	const char *text = strstr(message, "ZOO_ERROR@");

	text = text != NULL ? strstr(text, ": ") : NULL;
	text = text != NULL ? text + 2 : message;
	pthread_mutex_lock(&log_mutex);
	snprintf(last_error, sizeof(last_error), "%s", text);
	last_error[strcspn(last_error, "\r\n")] = '\0';
	if (strstr(text, " zk retcode=") != NULL)
	{
		/* the library logs before it closes the socket */
		connection.ended_at = zklock_client_now();
		connection.was_silent = strstr(text, "retcode=-7") != NULL;
		connection.contact_at = last_contact();
		connection.fd = -1;
	}
	pthread_mutex_unlock(&log_mutex);
}

/* How long the machine has been suspended since it was booted. */
static int64_t
suspended_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return zklock_client_now() -
		((int64_t) now.tv_sec * 1000 + now.tv_nsec / 1000000);
}

/*
 * With log_mutex: when did the connection last receive anything, 0 if that
 * cannot be told.  The kernel knows, and counts without suspensions; those
 * since the connection was made may all have come after the last contact.
 */
static int64_t
last_contact(void)
{
	struct tcp_info info;
	socklen_t	size = sizeof(info);
	struct stat file;

	if (connection.fd < 0 || fstat(connection.fd, &file) != 0 ||
		file.st_ino != connection.inode ||
		getsockopt(connection.fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0)
		return 0;
	return zklock_client_now() - info.tcpi_last_data_recv -
		(suspended_ms() - connection.suspended_ms);
}

/*
 * Find the library's socket: the one that is connected to the address that it
 * says it is connected to.  If there are several, none.
 */
static void
find_connection(zhandle_t *zh)
{
	struct sockaddr_storage server;
	struct sockaddr_storage peer;
	socklen_t	server_size = sizeof(server);
	struct stat file;
	struct dirent *entry;
	DIR		   *descriptors;
	int			found = -1;
	int			nfound = 0;

	if (zookeeper_get_connected_host(zh, (struct sockaddr *) &server,
									 &server_size) == NULL)
		return;
	descriptors = opendir("/proc/self/fd");
	while (descriptors != NULL && (entry = readdir(descriptors)) != NULL)
	{
		socklen_t	size = sizeof(peer);
		int			fd = atoi(entry->d_name);	/* 0 for "." and ".." */

		if (fd > 0 && getpeername(fd, (struct sockaddr *) &peer, &size) == 0 &&
			size == server_size && memcmp(&peer, &server, size) == 0)
		{
			found = fd;
			nfound++;
		}
	}
	if (descriptors != NULL)
		closedir(descriptors);
	pthread_mutex_lock(&log_mutex);
	connection.fd = nfound == 1 && fstat(found, &file) == 0 ? found : -1;
	connection.inode = connection.fd >= 0 ? file.st_ino : 0;
	connection.suspended_ms = suspended_ms();
	pthread_mutex_unlock(&log_mutex);
}

/* ---------------------------------------------------------------------
 * Helpers: signals, state, threads
 * ---------------------------------------------------------------------
 */

/*
 * Signals are blocked whenever the main thread is inside the library or holds
 * the mutex: the default SIGTERM handler of a background worker ends the
 * process from within, and its exit callbacks come back here.
 *
 * Pairs of these nest, and only the outermost costs system calls.  (A signal
 * before the mask is set finds the depth still 0, so what its handler calls
 * sets a mask of its own.)
 */
static void
block_signals(void)
{
	sigset_t	all;

	if (block_depth == 0)
	{
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &unblocked);
	}
	block_depth++;
}

static void
restore_signals(void)
{
	if (--block_depth == 0)
		pthread_sigmask(SIG_SETMASK, &unblocked, NULL);
}

static void
lock_mutex(void)
{
	block_signals();
	pthread_mutex_lock(&mutex);
}

static void
unlock_mutex(void)
{
	pthread_mutex_unlock(&mutex);
	restore_signals();
}

/* Make the wake-up descriptor readable.  Never blocks: it is a counter. */
static void
wake(void)
{
	uint64_t	one = 1;

	if (write(wake_fd, &one, sizeof(one)) < 0)
	{
		/* the counter is full, so it is readable */
	}
}

static void
set_error(const char *format,...)
{
	va_list		args;

	block_signals();
	pthread_mutex_lock(&log_mutex);
	va_start(args, format);
	vsnprintf(last_error, sizeof(last_error), format, args);
	va_end(args);
	pthread_mutex_unlock(&log_mutex);
	restore_signals();
}

/*
 * With the mutex held: the one place where a session changes its state.  LOST
 * is final.  A waiter looks at its queue again after every change.
 */
static void
move_to(ZkClient *client, ZkClientState state, ZkClientLoss loss)
{
	if (client->status.state == ZK_CLIENT_LOST)
		return;
	if (state == ZK_CLIENT_LOST && client->status.suspended_at == 0)
		client->status.suspended_at = zklock_client_now();
	if (state == ZK_CLIENT_CONNECTED)
		client->status.suspended_at = 0;
	client->status.state = state;
	client->status.loss = loss;
	client->watch_news = ZK_WATCH_LOOK_AGAIN;
	set_loss_timer(client);
	if (state == ZK_CLIENT_LOST && client->loss_signal != 0 &&
		!pthread_equal(pthread_self(), client->main_thread))
		pthread_kill(client->main_thread, client->loss_signal);
}

/*
 * With the mutex held: let the timer run while the session is suspended and
 * somebody wants to be interrupted by its loss, and only then.
 *
 * The signal is for the process.  All threads but the main one have all
 * signals blocked, so it gets there.
 */
static void
set_loss_timer(ZkClient *client)
{
	struct itimerspec at = {0};
	bool		is_wanted = client->status.state == ZK_CLIENT_SUSPENDED &&
		client->loss_signal != 0;

	if (!client->has_loss_timer || (!is_wanted && !client->is_loss_timer_set))
		return;
	client->is_loss_timer_set = is_wanted;
	if (is_wanted)
	{
		at.it_value.tv_sec = client->status.lost_deadline / 1000;
		at.it_value.tv_nsec = client->status.lost_deadline % 1000 * 1000000;
	}
	timer_settime(client->loss_timer, TIMER_ABSTIME, &at, NULL);
}

/* Start a thread with a small stack and all signals blocked; errno if not. */
static bool
start_thread(void *(*function) (void *), void *argument, pthread_t *thread)
{
	pthread_attr_t attributes;
	int			rc;

	block_signals();
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, THREAD_STACK_SIZE);
	rc = pthread_create(thread, &attributes, function, argument);
	pthread_attr_destroy(&attributes);
	restore_signals();
	errno = rc;
	return rc == 0;
}

static void *
wait_for_post(void *argument)
{
	while (sem_wait(argument) != 0)
		;
	return NULL;
}

/*
 * Can the two threads of the library be created (R5)?  It asserts that, and an
 * abort of one backend restarts the whole cluster.  Both must be alive at
 * once, or a limit of one more thread would go unnoticed.
 */
static bool
can_start_two_threads(void)
{
	pthread_t	threads[2];
	sem_t		go;
	int			started = 0;
	int			error = 0;

	sem_init(&go, 0, 0);
	while (started < 2 &&
		   start_thread(wait_for_post, &go, &threads[started]))
		started++;
	if (started < 2)
		error = errno;
	for (int i = 0; i < started; i++)
		sem_post(&go);
	for (int i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
	sem_destroy(&go);
	errno = error;
	return started == 2;
}

/* Look the names up; zklock_client_status() takes it from there. */
static void *
resolve_in_thread(void *argument)
{
	ZkClient   *client = argument;
	ServerAddresses *addresses = malloc(sizeof(*addresses));

	if (addresses != NULL)
		servers_resolve(&client->servers, addresses);
	pthread_mutex_lock(&mutex);
	if (addresses != NULL)
		client->addresses = *addresses;
	else
		snprintf(client->addresses.error, sizeof(client->addresses.error),
				 "out of memory");
	client->resolved = true;
	pthread_mutex_unlock(&mutex);
	free(addresses);
	wake();
	unreference(client);
	return NULL;
}

/*
 * Give the library the addresses and let it connect: the opening sequence in
 * which every step has its rule.
 */
static void
connect_client(ZkClient *client)
{
	ZkClientLoss loss = ZK_LOSS_NONE;
	zhandle_t  *zh = NULL;

	if (client->addresses.error[0] != '\0')
		loss = ZK_LOSS_RESOLVE;
	else if (!can_start_two_threads())
	{
		set_error("Could not create a thread: %s", strerror(errno));
		loss = ZK_LOSS_RESOURCES;
	}
	else
	{
		pthread_attr_t before;
		pthread_attr_t small;
		clientid_t	id = {.client_id = client->ticket.session_id};

		memcpy(id.passwd, client->ticket.password, sizeof(id.passwd));

		if (client->addresses.warning[0] != '\0')
			set_error("%s", client->addresses.warning);

		/* the library's threads inherit the signal mask and the default stack */
		block_signals();
		zoo_set_debug_level(ZOO_LOG_LEVEL_ERROR);
		zoo_deterministic_conn_order(1);	/* rotated by us */
		rotate_addresses(client->addresses.connect_string,
						 client->first_server % count_addresses(client));
		pthread_getattr_default_np(&before);
		pthread_attr_init(&small);
		pthread_attr_setstacksize(&small, THREAD_STACK_SIZE);
		pthread_setattr_default_np(&small);
		zh = zookeeper_init2(client->addresses.connect_string, session_event,
							 client->asked_timeout_ms,
							 client->is_taken_over ? &id : NULL, client,
							 ZOO_NO_LOG_CLIENTENV, log_line);
		if (zh == NULL)
		{
			set_error("Could not start the ZooKeeper client: %s",
					  strerror(errno));
			loss = ZK_LOSS_RESOURCES;
		}
		else
			zoo_set_servers_resolution_delay(zh, -1);	/* R1 */
		pthread_setattr_default_np(&before);
		pthread_attr_destroy(&small);
		pthread_attr_destroy(&before);
		restore_signals();
	}

	lock_mutex();
	client->zh = zh;
	client->status.naddresses = count_addresses(client);
	if (loss != ZK_LOSS_NONE)
		move_to(client, ZK_CLIENT_LOST, loss);
	else if (client->status.state == ZK_CLIENT_STARTING)
		move_to(client, ZK_CLIENT_CONNECTING, ZK_LOSS_NONE);
	unlock_mutex();
	if (zh != NULL)
		store_auth(client, zh);
}

static int
count_addresses(const ZkClient *client)
{
	int			count = 1;

	for (const char *c = client->addresses.connect_string; *c != '\0'; c++)
		count += *c == ',';
	return count;
}

/* Let the list "a,b,c" begin with another of its members: "b,c,a" for 1. */
static void
rotate_addresses(char *list, unsigned first)
{
	char		rotated[sizeof(((ServerAddresses *) 0)->connect_string)];
	char	   *comma;

	if (first == 0)
		return;
	for (comma = strchr(list, ','); --first > 0;)
		comma = strchr(comma + 1, ',');
	snprintf(rotated, sizeof(rotated), "%s,%.*s", comma + 1,
			 (int) (comma - list), list);
	strcpy(list, rotated);
}

static bool
is_auth_stored(ZkClient *client)
{
	bool		stored;

	lock_mutex();
	stored = client->auth_stored || client->auth_scheme == NULL;
	unlock_mutex();
	return stored;
}

/*
 * Hand the credentials to the library, which presents them ahead of every
 * queued request, after reconnects too.  While it is between two attempts to
 * connect it refuses to take them, and does not say so later: so this is
 * called again at each session event and status until it is true.  The
 * completion may be NULL here, and here alone (R12); a refusal by the server
 * arrives as a session event.
 */
static bool
store_auth(ZkClient *client, zhandle_t *zh)
{
	int			rc = ZOK;

	block_signals();
	if (client->auth_scheme != NULL)
		rc = zoo_add_auth(zh, client->auth_scheme, client->auth_credentials,
						  (int) strlen(client->auth_credentials), NULL, NULL);
	if (rc == ZOK)
	{
		pthread_mutex_lock(&mutex);
		client->auth_stored = true;
		pthread_mutex_unlock(&mutex);
	}
	restore_signals();
	return rc == ZOK;
}

/* The time in so many milliseconds, for the condition variable. */
static struct timespec
monotonic_in(int ms)
{
	struct timespec when;

	clock_gettime(CLOCK_MONOTONIC, &when);
	when.tv_sec += ms / 1000;
	when.tv_nsec += ms % 1000 * 1000000L;
	if (when.tv_nsec >= 1000000000L)
	{
		when.tv_sec++;
		when.tv_nsec -= 1000000000L;
	}
	return when;
}

static void *
close_in_thread(void *argument)
{
	close_handle(argument);
	unreference(argument);
	return NULL;
}

/*
 * Close the session, with all signals blocked: wait for outstanding requests
 * (R4), then tell the server, then wait for the library's threads.
 *
 * Requests that wait for a connection are waited for too.  If it comes about
 * just when we close, they would go out together with the close, and the nodes
 * that they make would stay until the session times out.
 */
static void
close_handle(ZkClient *client)
{
	struct timespec deadline = monotonic_in(DRAIN_MS);
	zhandle_t  *zh;

	pthread_mutex_lock(&mutex);
	while (client->npending > 0 && client->zh != NULL &&
		   client->status.state != ZK_CLIENT_LOST &&
		   pthread_cond_timedwait(&client->changed, &mutex, &deadline) == 0)
		;
	zh = client->zh;
	pthread_mutex_unlock(&mutex);

	if (zh != NULL)
		zookeeper_close(zh);

	pthread_mutex_lock(&mutex);
	client->closed = true;
	nclosing--;
	pthread_cond_broadcast(&client->changed);
	pthread_mutex_unlock(&mutex);
	wake();
}

/*
 * Drop one of the references of the main thread, the resolver and the closer;
 * the last one frees the client and the requests that are left.  The
 * library's threads are gone by then.
 */
static void
unreference(ZkClient *client)
{
	ZkRequest  *request;
	bool		last;

	lock_mutex();
	last = --client->references == 0;
	unlock_mutex();
	if (!last)
		return;
	while ((request = any_request_of(client)) != NULL)
		free_request(request);
	if (client->has_loss_timer)
		timer_delete(client->loss_timer);
	pthread_cond_destroy(&client->changed);
	free(client->watch_path);
	free(client->auth_scheme);
	if (client->auth_credentials != NULL)
		explicit_bzero(client->auth_credentials,
					   strlen(client->auth_credentials));
	free(client->auth_credentials);
	free(client);
}

/* ---------------------------------------------------------------------
 * Helpers: requests
 * ---------------------------------------------------------------------
 */

/* Some request of the client, or NULL. */
static ZkRequest *
any_request_of(ZkClient *client)
{
	ZkRequest  *request = NULL;

	lock_mutex();
	for (uintptr_t i = 0; i < nslots && request == NULL; i++)
		if (slots[i] != NULL && slots[i]->client == client)
			request = slots[i];
	unlock_mutex();
	return request;
}

/* Copy a string unless it is NULL; *failed is set if there is no memory. */
static char *
copy_text(const char *text, bool *failed)
{
	char	   *copy = text != NULL ? strdup(text) : NULL;

	if (text != NULL && copy == NULL)
		*failed = true;
	return copy;
}

/*
 * Make a request that is not sent yet and give it a number.  NULL without
 * memory, or with 2^16 requests under way.
 */
static ZkRequest *
new_request(ZkClient *client, RequestKind kind, const char *path,
			const char *other_path, const char *data, int length)
{
	ZkRequest  *request = calloc(1, sizeof(*request));
	bool		failed = false;

	if (request == NULL)
		return NULL;
	request->client = client;
	request->kind = kind;
	request->version = ZK_ANY_VERSION;
	request->path = copy_text(path, &failed);
	request->other_path = copy_text(other_path, &failed);
	if (length > 0)
	{
		request->data = malloc(length);
		if (request->data != NULL)
			memcpy(request->data, data, length);
		else
			failed = true;
		request->data_length = length;
	}
	if (failed || !register_request(request))
	{
		free_request(request);
		return NULL;
	}
	return request;
}

/* Put the request into a free slot; false if there is none and no memory. */
static bool
register_request(ZkRequest *request)
{
	uintptr_t	slot;
	bool		found = false;

	lock_mutex();
	for (uintptr_t i = 0; i < nslots && !found; i++)
	{
		slot = (next_slot + i) % nslots;
		found = slots[slot] == NULL;
	}
	if (!found && nslots <= SLOT_MASK)
	{
		uintptr_t	wider = nslots > 0 ? nslots * 2 : 64;
		ZkRequest **more = realloc(slots, wider * sizeof(*slots));

		if (more != NULL)
		{
			memset(more + nslots, 0, (wider - nslots) * sizeof(*slots));
			slot = nslots;
			slots = more;
			nslots = wider;
			found = true;
		}
	}
	if (found)
	{
		next_slot = (slot + 1) % nslots;
		generation++;
		request->id = (generation << SLOT_BITS) | slot;
		slots[slot] = request;
	}
	unlock_mutex();
	return found;
}

/* Free a request that is done or was never sent, and its slot. */
static void
free_request(ZkRequest *request)
{

	lock_mutex();
	if (request->id != 0)
		slots[request->id & SLOT_MASK] = NULL;
	unlock_mutex();
	free(request->path);
	free(request->other_path);
	free(request->data);
	free(request->reply_path);
	free(request->reply_data);
	free(request->reply_children);
	free(request->heard);
	free(request);
}

/* Send a request for the first time, or a withdrawn one as its undoing. */
static void
submit(ZkRequest *request)
{

	lock_mutex();
	request->client->npending++;
	request->sent_at = zklock_client_now();
	pthread_mutex_unlock(&mutex);
	send_request(request);
	restore_signals();
}

/* Make a request and send it; NULL without memory. */
static ZkRequest *
start_request(ZkClient *client, RequestKind kind, ZkNodeKind node_kind,
			  const char *path, const char *other_path,
			  const char *data, int length, int version)
{
	ZkRequest  *request;

	block_signals();
	request = new_request(client, kind, path, other_path, data, length);
	if (request != NULL)
	{
		request->node_kind = node_kind;
		request->version = version;
		submit(request);
	}
	restore_signals();
	return request;
}

/* The same for one that takes nothing but a path: reads, and a prune. */
static ZkRequest *
start_read(ZkClient *client, RequestKind kind, const char *path)
{
	return start_request(client, kind, ZK_PERSISTENT, path, NULL, NULL, 0,
						 ZK_ANY_VERSION);
}

/* The same for one whose answer nobody waits for; false without memory. */
static bool
start_unwanted(ZkClient *client, RequestKind kind, const char *path,
			   const char *data, int length)
{
	ZkRequest  *request;

	block_signals();
	request = new_request(client, kind, path, NULL, data, length);
	if (request != NULL)
	{
		request->unwanted = true;
		submit(request);
	}
	restore_signals();
	return request != NULL;
}

/*
 * Hand a request to the library.  The mutex is not held: the answer may be
 * there before this returns, and then the request may be gone.  A refusal by
 * the library itself is completed here, like an answer.
 */
static void
send_request(ZkRequest *request)
{
	zhandle_t  *zh = request->client->zh;
	const void *id = (const void *) request->id;
	const char *path = request->path;
	int			rc = ZINVALIDSTATE;

	if (zh == NULL)
	{
		void_done(rc, id);
		return;
	}
	switch (request->kind)
	{
		case REQUEST_CREATE:
		case REQUEST_REPLACE_CREATE:
			rc = zoo_acreate2(zh, path, request->data, request->data_length,
							  acl_of(request),
							  flags_of(request->node_kind), create_done, id);
			break;
		case REQUEST_LIST:
			rc = zoo_aget_children(zh, path, 0, list_done, id);
			break;
		case REQUEST_LIST_AND_WATCH:
			rc = zoo_awget_children(zh, path, node_event, request->client,
									list_done, id);
			break;
		case REQUEST_GET:
			rc = zoo_awget(zh, path, NULL, NULL, get_done, id);
			break;
		case REQUEST_GET_AND_WATCH:
			rc = zoo_awget(zh, path, node_event, request->client, get_done, id);
			break;
		case REQUEST_SYNC:
			rc = zoo_async(zh, path, string_done, id);
			break;
		case REQUEST_CHECK:
		case REQUEST_REPLACE_CHECK:
			if (request->kind == REQUEST_REPLACE_CHECK)
				path = request->other_path;
			zoo_check_op_init(&request->op, path, -1);
			rc = zoo_amulti(zh, 1, &request->op, &request->op_result,
							void_done, id); /* R6 */
			break;
		case REQUEST_NUDGE:
		case REQUEST_SWEEP:
			rc = zoo_aexists(zh, path, 0, stat_done, id);
			break;
		case REQUEST_LISTEN:

			/*
			 * The one exists that leaves a watch: nothing else watches a node
			 * that is not there.  UNLISTEN removes it.
			 */
			rc = zoo_awexists(zh, path, heard_event, request->client,
							  stat_done, id);
			break;
		case REQUEST_LISTEN_GET:
			rc = zoo_awget(zh, path, heard_event, request->client,
						   get_done, id);
			break;
		case REQUEST_UNLISTEN:

			/*
			 * Not zoo_aremove_watches(), which only asks the server whether
			 * there is a watch.  The completion's type is a mistake in the
			 * library's header: it takes the function itself.
			 */
			rc = zoo_aremove_all_watches(zh, path, ZWATCHTYPE_DATA, 0,
										 (void_completion_t *) void_done, id);
			break;
		case REQUEST_SET:
		case REQUEST_ANNOUNCE:
			rc = zoo_aset(zh, path, request->data != NULL ? request->data : "",
						  request->data_length, request->version,
						  stat_done, id);
			break;
		case REQUEST_DELETE:
		case REQUEST_REMOVE:
		case REQUEST_PRUNE:
			rc = zoo_adelete(zh, path, request->version, void_done, id);
			break;
		case REQUEST_REPLACE_DELETE:
			rc = zoo_adelete(zh, request->other_path, -1, void_done, id);
			break;
		case REQUEST_ERASE:

			/*
			 * The server that we are connected to now may not have heard of
			 * the node yet: sync first.  Both go out together.
			 */
			zoo_async(zh, path, string_done, NULL);
			rc = zoo_aget_children(zh, path, 0, list_done, id);
			break;
	}

	/* what zoo_amulti() says on a handle that is over */
	if (rc == ZMARSHALLINGERROR && is_unrecoverable(zh))
		rc = ZINVALIDSTATE;
	if (rc != ZOK)
		void_done(rc, id);
}

/*
 * With credentials only their owner may change our nodes; everybody may read,
 * which other clients of the recipe need to wait behind us.  The parents are
 * everybody's, as with every other client, unless the credentials are the
 * user's.
 */
static const struct ACL_vector *
acl_of(const ZkRequest *request)
{
	const ZkClient *client = request->client;
	bool		is_parent = request->node_kind == ZK_PERSISTENT ||
		request->node_kind == ZK_CONTAINER;

	return client->auth_scheme == NULL ||
		(client->is_auth_private && is_parent) ?
		&ZOO_OPEN_ACL_UNSAFE : &guarded_acl;
}

/* Fill in what cannot be initialised statically, before any thread reads it. */
static void
prepare_guarded_acl(void)
{
	if (owner_and_readers[0].perms != 0)
		return;
	owner_and_readers[0].perms = ZOO_PERM_ALL;
	owner_and_readers[0].id = ZOO_AUTH_IDS;
	owner_and_readers[1].perms = ZOO_PERM_READ;
	owner_and_readers[1].id = ZOO_ANYONE_ID_UNSAFE;
}

static int
flags_of(ZkNodeKind kind)
{
	switch (kind)
	{
		case ZK_PERSISTENT:
		case ZK_PERSISTENT_OWN:
			return 0;
		case ZK_CONTAINER:
			return ZOO_CONTAINER;
		case ZK_EPHEMERAL:
			return ZOO_EPHEMERAL;
		case ZK_EPHEMERAL_SEQUENTIAL:
			return ZOO_EPHEMERAL_SEQUENTIAL;
	}
	return 0;
}

/* The one table from the library's codes to ours. */
static ZkResult
result_of_code(int rc)
{
	switch (rc)
	{
		case ZOK:
			return ZK_OK;
		case ZNONODE:
			return ZK_NO_NODE;
		case ZNODEEXISTS:
			return ZK_NODE_EXISTS;
		case ZBADVERSION:
			return ZK_BAD_VERSION;
		case ZNOAUTH:
		case ZINVALIDACL:
			return ZK_NO_AUTH;
		case ZCONNECTIONLOSS:
		case ZOPERATIONTIMEOUT: /* R8: the server may execute it yet */
		case ZSYSTEMERROR:		/* no socket for the next attempt */
		case ZSESSIONMOVED:
		case ZRUNTIMEINCONSISTENCY: /* a reply out of order: it hangs up */
			return ZK_UNKNOWN_OUTCOME;
		case ZSESSIONEXPIRED:
		case ZINVALIDSTATE:
		case ZCLOSING:
		case ZAUTHFAILED:
		case ZSESSIONCLOSEDREQUIRESASLAUTH:
			return ZK_SESSION_LOST;
		case ZBADARGUMENTS:
			return ZK_BAD_ARGUMENTS;
		case ZUNIMPLEMENTED:
			return ZK_UNIMPLEMENTED;
		case ZMARSHALLINGERROR: /* before sending: out of memory */
			return ZK_NO_MEMORY;
		default:
			return ZK_FAILED;
	}
}
