/*-------------------------------------------------------------------------
 *
 * fake_library.h
 *	  A ZooKeeper library for unit tests of the session's program: it sends nothing,
 *	  writes down what it is asked for, and says what the test has it say. The clocks
 *	  stand still until the test moves them.
 *
 * Real servers, with which the same modules are tested in test/t, cannot be made to answer
 * in a certain order at a certain millisecond.
 *
 * It comes with the program's own end of TLS, and with program_main.c and
 * program_connection.c, whose functions can then be called one by one.  Each session has its own page, in memory that nobody
 * frees: the program relies on the end of its process.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_FAKE_LIBRARY_H
#define ZKLOCK_FAKE_LIBRARY_H

#define main program_main
#include "program_main.c"
#undef main
#include "program_connection.c"

#include <dlfcn.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "program_request.h"
#include "tap.h"

#define NELEMS(array) ((int) (sizeof(array) / sizeof((array)[0])))

/* A test need not use all that there is. */
#define HELPER __attribute__((unused)) static

#define TIMEOUT_MS 12000
#define SESSIONS_MAX 400
#define CALLS_MAX 400

/* What the library was asked for. */
typedef struct Call
{
	const char *what;			/* the function, without its prefix */
	char		path[300];
	char		data[300];
	int			version;
	int			mode;			/* of a create: flags; of removed watches: whose */
	bool		is_local;		/* removed watches: in memory alone */
	bool		is_open;		/* of a create: the ACL is everybody's */
	bool		is_watched;
	zoo_op_t	ops[3];
	int			nops;
	char		last_path[300]; /* of the last of them */
	union
	{
		string_stat_completion_t create;
		strings_completion_t list;
		data_completion_t get;
		string_completion_t string;
		void_completion_t nothing;
		stat_completion_t stat;
		acl_completion_t acl;
	}			done;
	Request    *request;
} Call;

static Call calls[CALLS_MAX];
static int	ncalls;

/* What the library says, and what it was told at its start. */
static struct
{
	int			state;
	int			granted_ms;		/* the session timeout */
	clientid_t	id;
	const char *server;
	bool		is_over;		/* unrecoverable */
	bool		has_no_room;	/* does not start */
	bool		has_no_list;	/* takes no other servers */
	int			refusal;		/* the code with which it takes no request */
	const char *refused;		/* the one function that takes none; NULL: all do */
	bool		drops;			/* the connection, as it takes a request */
	int			fd;
	int			interest_rc;
	int			interest_ms;
	int			ninterests;
	watcher_fn	watcher;
	log_callback_fn log;
	void	   *context;
	char		hosts[SERVERS_TEXT_SIZE];
	char		stand_in[SERVERS_TEXT_SIZE];	/* those before */
	int			nset;			/* how often it got others */
	int			asked_ms;
	clientid_t	asked_id;
	bool		has_id;
	int			flags;
	int			delay_ms;
	int			order;
	char		auth[100];
	int			nclosed;
}			library;

/* What TLS and the kernel say. */
static struct
{
	const char *error;
	const char *bad_files;
	const char *stale;
	int64_t		received_at;
	int			silent_ms;		/* nothing received for so long */
	bool		is_no_socket;
	pid_t		parent;
	int			nkilled;
	uint32_t	told_loss;		/* what the page and the frames said by then */
	uint64_t	told_frames;
	bool		cannot_fork;
	const char *found;			/* the address of names that end with ".test";
								 * NULL: they are unknown */
}			around;

/* The clocks. */
static int64_t boot_ms;
static int64_t asleep_ms;		/* the machine was suspended for so long */
static const int64_t wall_ahead = 5000000;

static Session sessions[SESSIONS_MAX];
static SharedPage pages[SESSIONS_MAX];
static int	nsessions;
static Session *session;
static int	backend_end;		/* of the channel */

/* ---- what libc, TLS and the library have ---- */

int
clock_gettime(clockid_t clock, struct timespec *now)
{
	int64_t		ms = boot_ms;

	if (clock == CLOCK_MONOTONIC)
		ms -= asleep_ms;
	else if (clock == CLOCK_REALTIME)
		ms += wall_ahead;
	else if (clock != CLOCK_BOOTTIME)
		return (int) syscall(SYS_clock_gettime, clock, now);
	now->tv_sec = ms / 1000;
	now->tv_nsec = ms % 1000 * 1000000;
	return 0;
}

int
getsockopt(int fd, int level, int name, void *value, socklen_t *size)
{
	if (around.is_no_socket || level != IPPROTO_TCP || name != TCP_INFO)
		return -1;
	memset(value, 0, *size);
	((struct tcp_info *) value)->tcpi_last_data_recv = (uint32_t) around.silent_ms;
	return 0;
}

pid_t
getppid(void)
{
	return around.parent;
}

/* In parentheses, for a build of "make coverage" has a macro of this name. */
int
(kill)(pid_t pid, int number)
{
	if (number == SIGINT)
	{
		around.nkilled++;
		around.told_loss = atomic_load(&session->page->lost);
		around.told_frames = atomic_load(&session->page->nflushed);
		return 0;
	}
	return (int) syscall(SYS_kill, pid, number);
}

pid_t
fork(void)
{
	pid_t		(*libc) (void);

	*(void **) &libc = dlsym(RTLD_NEXT, "fork");
	errno = EAGAIN;
	return around.cannot_fork ? -1 : libc();
}

/* Of all names the one "slow.test" is looked up for ever. */
int
getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
			struct addrinfo **result)
{
	int			(*libc) (const char *, const char *, const struct addrinfo *, struct addrinfo **);

	/* POSIX: the way to get a function out of dlsym() */
	*(void **) &libc = dlsym(RTLD_NEXT, "getaddrinfo");
	while (strcmp(host, "slow.test") == 0)
		pause();
	if (strlen(host) > 5 && strcmp(host + strlen(host) - 5, ".test") == 0)
	{
		if (around.found == NULL)
			return EAI_NONAME;
		host = around.found;
	}
	return libc(host, service, hints, result);
}

/* The middle of what it can be. */
double
drand48(void)
{
	return 0.5;
}

bool
tls_begin(const char *text, char why[TLS_WHY_SIZE])
{
	snprintf(why, TLS_WHY_SIZE, "%s", around.bad_files);
	return around.bad_files[0] == '\0';
}

void
tls_expect(const ServerList *list, const ServerAddress addresses[], int count)
{
}

void
tls_leave(void)
{
}

bool
tls_is_used(int fd)
{
	return false;
}

void
tls_gather(int fd)
{
}

int
tls_poll(struct pollfd *polled, int count, int timeout_ms)
{
	return poll(polled, (nfds_t) count, timeout_ms < 0 || timeout_ms > 100 ? 100 : timeout_ms);
}

const char *
tls_error(int fd)
{
	return around.error;
}

int
tls_socket(int fd, int64_t *received_at)
{
	*received_at = around.received_at;
	return fd;
}

const char *
tls_describe(int fd, char *text, size_t size)
{
	snprintf(text, size, "TLS of %d", fd);
	return around.stale;
}

void
program_ask(const FrameTaken *frame)
{
}

const int	ZOO_PERM_READ = 1;
const int	ZOO_PERM_WRITE = 2;
const int	ZOO_PERM_CREATE = 4;
const int	ZOO_PERM_DELETE = 8;
const int	ZOO_PERM_ADMIN = 16;
const int	ZOO_PERM_ALL = 31;
struct Id	ZOO_ANYONE_ID_UNSAFE = {"world", "anyone"};
struct Id	ZOO_AUTH_IDS = {"auth", ""};
static struct ACL open_acl[] = {{31, {"world", "anyone"}}};
struct ACL_vector ZOO_OPEN_ACL_UNSAFE = {1, open_acl};
const int	ZOOKEEPER_WRITE = 1;
const int	ZOOKEEPER_READ = 2;
const int	ZOO_EPHEMERAL = 1;
const int	ZOO_PERSISTENT_SEQUENTIAL = 2;
const int	ZOO_EPHEMERAL_SEQUENTIAL = 3;
const int	ZOO_CONTAINER = 4;
const int	ZOO_EXPIRED_SESSION_STATE = -112;
const int	ZOO_AUTH_FAILED_STATE = -113;
const int	ZOO_CONNECTING_STATE = 1;
const int	ZOO_ASSOCIATING_STATE = 2;
const int	ZOO_CONNECTED_STATE = 3;
const int	ZOO_READONLY_STATE = 5;
const int	ZOO_DELETED_EVENT = 2;
const int	ZOO_CHANGED_EVENT = 3;
const int	ZOO_CHILD_EVENT = 4;
const int	ZOO_SESSION_EVENT = -1;

zhandle_t *
zookeeper_init2(const char *host, watcher_fn watcher, int timeout,
				const clientid_t *id, void *context, int flags,
				log_callback_fn log)
{
	snprintf(library.hosts, sizeof(library.hosts), "%s", host);
	library.watcher = watcher;
	library.log = log;
	library.context = context;
	library.asked_ms = timeout;
	library.has_id = id != NULL;
	if (id != NULL)
		library.asked_id = *id;
	library.flags = flags;
	errno = ENOMEM;
	return library.has_no_room ? NULL : (zhandle_t *) &library;
}

void
zoo_set_debug_level(ZooLogLevel level)
{
}

void
zoo_deterministic_conn_order(int order)
{
	library.order = order;
}

int
zoo_set_servers_resolution_delay(zhandle_t *zh, int delay_ms)
{
	library.delay_ms = delay_ms;
	return ZOK;
}

int
zoo_set_servers(zhandle_t *zh, const char *hosts)
{
	snprintf(library.stand_in, sizeof(library.stand_in), "%s", library.hosts);
	snprintf(library.hosts, sizeof(library.hosts), "%s", hosts);
	library.nset++;
	return library.has_no_list ? ZSYSTEMERROR : ZOK;
}

int
zoo_add_auth(zhandle_t *zh, const char *scheme, const char *text, int length,
			 void_completion_t completion, const void *data)
{
	snprintf(library.auth, sizeof(library.auth), "%s %.*s", scheme, length, text);
	return ZOK;
}

int
zoo_state(zhandle_t *zh)
{
	return library.state;
}

int
is_unrecoverable(zhandle_t *zh)
{
	return library.is_over ? ZINVALIDSTATE : ZOK;
}

int
zoo_recv_timeout(zhandle_t *zh)
{
	return library.granted_ms;
}

const clientid_t *
zoo_client_id(zhandle_t *zh)
{
	return &library.id;
}

const char *
zoo_get_current_server(zhandle_t *zh)
{
	return library.server;
}

int
zookeeper_interest(zhandle_t *zh, int *fd, int *interest, struct timeval *timeout)
{
	*fd = library.fd;
	*interest = ZOOKEEPER_READ;
	timeout->tv_sec = library.interest_ms / 1000;
	timeout->tv_usec = library.interest_ms % 1000 * 1000;
	library.ninterests++;
	return library.interest_rc;
}

int
zookeeper_process(zhandle_t *zh, int events)
{
	return ZNOTHING;
}

int
zookeeper_close(zhandle_t *zh)
{
	library.nclosed++;
	return ZOK;
}

const char *
zerror(int code)
{
	return code == ZOK ? "ok" : code == ZNONODE ? "no node" : "an error";
}

/* Write a request down; the code that the library has for it. */
static int
take_call(const char *what, const char *path, const char *data, int length,
		  Call details, const void *request)
{
	Call	   *call = &calls[ncalls % CALLS_MAX];

	if (library.refusal != ZOK)
		return library.refusal;
	if (library.refused != NULL && strcmp(library.refused, what) == 0)
		return ZINVALIDSTATE;
	*call = details;
	call->what = what;
	call->request = (Request *) request;
	snprintf(call->path, sizeof(call->path), "%s", path);
	snprintf(call->data, sizeof(call->data), "%.*s", length, data != NULL ? data : "");
	ncalls++;
	if (library.drops)
		library.state = ZOO_CONNECTING_STATE;
	return ZOK;
}

int
zoo_acreate2(zhandle_t *zh, const char *path, const char *value, int length,
			 const struct ACL_vector *acl, int mode,
			 string_stat_completion_t completion, const void *data)
{
	return take_call("create", path, value, length,
					 (Call) {.mode = mode,.is_open = acl == &ZOO_OPEN_ACL_UNSAFE,.done.create = completion},
					 data);
}

int
zoo_awget_children(zhandle_t *zh, const char *path, watcher_fn watcher,
				   void *context, strings_completion_t completion, const void *data)
{
	return take_call("list", path, NULL, 0,
					 (Call) {.is_watched = watcher == follow_event,.done.list = completion}, data);
}

int
zoo_awget(zhandle_t *zh, const char *path, watcher_fn watcher, void *context,
		  data_completion_t completion, const void *data)
{
	return take_call("get", path, NULL, 0,
					 (Call) {.is_watched = watcher == follow_event,.done.get = completion}, data);
}

int
zoo_async(zhandle_t *zh, const char *path, string_completion_t completion,
		  const void *data)
{
	return take_call("sync", path, NULL, 0, (Call) {.done.string = completion}, data);
}

int
zoo_amulti(zhandle_t *zh, int count, const zoo_op_t *ops,
		   zoo_op_result_t *results, void_completion_t completion,
		   const void *data)
{
	Call		call = {.nops = count,.done.nothing = completion};

	memcpy(call.ops, ops, sizeof(*ops) * (size_t) (count < NELEMS(call.ops) ? count : NELEMS(call.ops)));
	call.is_open = ops[0].type == '+' && ops[0].create_op.acl == &ZOO_OPEN_ACL_UNSAFE;
	snprintf(call.last_path, sizeof(call.last_path), "%s", ops[count - 1].check_op.path);
	return take_call("multi", ops[0].check_op.path, NULL, 0, call, data);
}

int
zoo_aexists(zhandle_t *zh, const char *path, int watch,
			stat_completion_t completion, const void *data)
{
	return take_call("exists", path, NULL, 0, (Call) {.done.stat = completion}, data);
}

int
zoo_aset(zhandle_t *zh, const char *path, const char *value, int length,
		 int version, stat_completion_t completion, const void *data)
{
	return take_call("set", path, value, length,
					 (Call) {.version = version,.done.stat = completion}, data);
}

int
zoo_adelete(zhandle_t *zh, const char *path, int version,
			void_completion_t completion, const void *data)
{
	return take_call("delete", path, NULL, 0,
					 (Call) {.version = version,.done.nothing = completion}, data);
}

int
zoo_aget_acl(zhandle_t *zh, const char *path, acl_completion_t completion,
			 const void *data)
{
	return take_call("get_acl", path, NULL, 0, (Call) {.done.acl = completion}, data);
}

int
zoo_aremove_all_watches(zhandle_t *zh, const char *path, ZooWatcherType type,
						int local, void_completion_t *completion, const void *data)
{
	return take_call("unwatch", path, NULL, 0,
					 (Call) {.mode = type,.is_local = local != 0,.done.nothing = (void_completion_t) completion},
					 data);
}

static void
init_op(zoo_op_t *op, const char *path, int type, int version)
{
	memset(op, 0, sizeof(*op));
	op->type = type;
	op->check_op.path = path;
	op->check_op.version = version;
}

void
zoo_check_op_init(zoo_op_t *op, const char *path, int version)
{
	init_op(op, path, 'c', version);
}

void
zoo_delete_op_init(zoo_op_t *op, const char *path, int version)
{
	init_op(op, path, 'd', version);
}

void
zoo_set_op_init(zoo_op_t *op, const char *path, const char *data, int length,
				int version, struct Stat *stat)
{
	init_op(op, path, 's', version);
}

void
zoo_create_op_init(zoo_op_t *op, const char *path, const char *data, int length,
				   const struct ACL_vector *acl, int flags, char *buffer,
				   int size)
{
	init_op(op, path, '+', flags);
	op->create_op.acl = acl;
	op->create_op.flags = flags;
}

/* ---- what a test does ---- */

/* A session that nobody has opened yet; the library has nothing to say. */
HELPER void
begin_session(void)
{
	static int	channel[2] = {-1, -1};

	if (channel[0] >= 0)
		close(backend_end);
	socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, channel);
	dup2(channel[0], PROTOCOL_CHANNEL_FD);
	if (channel[0] != PROTOCOL_CHANNEL_FD)
		close(channel[0]);
	backend_end = channel[1];

	session = &sessions[nsessions];
	*session = (Session) {
		.link.fd = -1,.traffic.retry_at = INT64_MAX,.wake_at = INT64_MAX,.watcher = follow_event
	};
	session->page = &pages[nsessions++];
	memset(&library, 0, sizeof(library));
	library.state = ZOO_CONNECTING_STATE;
	library.granted_ms = TIMEOUT_MS;
	library.id.client_id = 4711;
	memcpy(library.id.passwd, "0123456789abcde", 16);
	library.server = "127.0.0.1:1";
	library.fd = -1;
	memset(&around, 0, sizeof(around));
	around.error = around.bad_files = around.stale = "";
	around.received_at = INT64_MAX;
	ncalls = 0;
	boot_ms = 1000000;
	asleep_ms = 0;
	memset(calls, 0, sizeof(calls));
}

HELPER FrameTaken
opening_of(const char *servers)
{
	return (FrameTaken) {
		.frame.u.open = {
			.backend_pid = 999999999,.session_timeout_ms = TIMEOUT_MS
		},
		.blobs = {servers}
	};
}

#define THREE "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"

/* As the loop does with the first frame. */
HELPER void
open_with(const FrameTaken *opening)
{
	settings_begin(session, opening);
	session_open(session, opening);
}

HELPER void
open_session(const char *servers)
{
	FrameTaken	opening = opening_of(servers);

	begin_session();
	open_with(&opening);
}

/* What the loop does when it goes round: with requests, and with the session. */
HELPER void
tick_requests(int64_t now)
{
	follow_tick(session);
	step_tick(session, now);
	pulse_tick(session, now);
}

HELPER void
tick_session(int64_t now)
{
	session_tick(session, now);
	idle_tick(session, now);
	follow_tick(session);
}

/* The library says that it is connected now. */
HELPER void
connect_now(void)
{
	session->link.fd = 77;
	library.state = ZOO_CONNECTED_STATE;
	library.watcher(session->zh, ZOO_SESSION_EVENT, ZOO_CONNECTED_STATE, NULL, session);
}

HELPER void
open_and_connect(const char *servers)
{
	open_session(servers);
	connect_now();
}

/* The line that the library logs about the end of a connection, or attempt. */
HELPER void
log_end(int code, const char *error)
{
	char		line[300];

	snprintf(line, sizeof(line),
			 "2026-11-26 10:00:00,1:7(0x7f):ZOO_ERROR@handle_socket_error_msg@2345: Socket %s zk retcode=%d, errno=1(%s): x (y)",
			 library.server, code, error);
	library.log(line);
}

/* A connection, or attempt, ends. */
HELPER void
disconnect_now(int code)
{
	log_end(code, "Connection reset by peer");
	library.state = ZOO_CONNECTING_STATE;
	library.watcher(session->zh, ZOO_SESSION_EVENT, ZOO_CONNECTING_STATE, NULL, session);
}

/* The latest call of the library; or one that says "nothing" if there is none. */
HELPER Call *
last_call(void)
{
	static Call nothing = {.what = "nothing"};

	return ncalls == 0 ? &nothing : &calls[ncalls - 1];
}

/* The latest one of that function. */
HELPER Call *
last_of(const char *what)
{
	int			i = ncalls;

	while (--i > 0 && strcmp(calls[i].what, what) != 0)
		;
	return &calls[i];
}

/* How many calls of that function there were, of that path or (NULL) of any. */
HELPER int
count_calls(const char *what, const char *path)
{
	int			n = 0;

	for (int i = 0; i < ncalls; i++)
		n += strcmp(calls[i].what, what) == 0 &&
			(path == NULL || strcmp(calls[i].path, path) == 0);
	return n;
}

/* Answer a call: with a code alone, or with what the servers say. */
HELPER void
answer_with(Call *given, int rc, const char *text, const struct Stat *stat,
			struct String_vector *strings)
{
	Call		call = *given;

	if (strcmp(call.what, "create") == 0)
		call.done.create(rc, text, stat, call.request);
	else if (strcmp(call.what, "list") == 0)
		call.done.list(rc, strings, call.request);
	else if (strcmp(call.what, "get") == 0)
		call.done.get(rc, text, text != NULL ? (int) strlen(text) : 0, stat, call.request);
	else if (strcmp(call.what, "sync") == 0)
		call.done.string(rc, text, call.request);
	else if (strcmp(call.what, "exists") == 0 || strcmp(call.what, "set") == 0)
		call.done.stat(rc, stat, call.request);
	else if (strcmp(call.what, "get_acl") == 0)
		call.done.acl(rc, NULL, NULL, call.request);
	else if (call.done.nothing != NULL)
		call.done.nothing(rc, call.request);
}

HELPER void
answer(Call *call, int rc)
{
	answer_with(call, rc, NULL, NULL, NULL);
}

/* The names are separated by blanks. */
HELPER void
answer_list(Call *call, const char *names)
{
	char		copy[2000];
	char	   *all[200];
	struct String_vector strings = {0, all};
	char	   *save = NULL;

	snprintf(copy, sizeof(copy), "%s", names);
	for (char *name = strtok_r(copy, " ", &save); name != NULL; name = strtok_r(NULL, " ", &save))
		all[strings.count++] = name;
	answer_with(call, ZOK, NULL, NULL, &strings);
}

/* The next frame for the backend; its kind is 0 if there is none. */
HELPER FrameTaken
next_frame(void)
{
	static FrameBuffer in;
	static bool is_taken;
	static int	of = -1;
	FrameTaken	taken = {0};
	ssize_t		received;

	backend_flush(session);
	if (of != nsessions)
	{
		frame_buffer_free(&in);
		memset(&in, 0, sizeof(in));
		is_taken = false;
		of = nsessions;
	}
	if (is_taken)
		frame_buffer_consume(&in, 0);
	is_taken = false;
	frame_buffer_reserve(&in, 65536);
	received = recv(backend_end, in.bytes + in.end, in.size - in.end, MSG_DONTWAIT);
	if (received > 0)
		in.end += (size_t) received;
	if (in.start < in.end && frame_take(&in, FRAME_FROM_PROGRAM, &taken) == FRAME_COMPLETE)
		is_taken = true;
	else
		taken = (FrameTaken) {0};
	return taken;
}

/*
 * Does that end the process, and does the backend read that in the last frame ahead of the
 * end?  Nothing else is to be read there.  Both with assertions and without.
 */
HELPER void
is_end_of_process(const char *error, void (*illegal) (void), const char *what)
{
	pid_t		child = fork();
	int			status = 0;
	FrameTaken	frame;

	if (child == 0)
	{
		setrlimit(RLIMIT_CORE, &(struct rlimit) {0, 0});
		dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);	/* which has the assertion */
		illegal();
		_exit(0);
	}
	ok(waitpid(child, &status, 0) == child && status != 0, "%s: the process ends", what);
	frame = next_frame();
	is_int(FRAME_STATUS, frame.frame.kind, "%s: the backend is told", what);
	is_int(ZK_CLIENT_LOST, frame.frame.u.status.state, "%s: the session is lost", what);
	is_int(ZK_LOSS_PROGRAM, frame.frame.u.status.loss, "%s: by the program", what);
	is_str(error, frame.blobs[1], "%s: the words", what);
}

/* All that there is for the backend is read; how many were of that kind? */
HELPER int
count_frames(FrameKind kind)
{
	int			n = 0;
	FrameTaken	taken;

	while ((taken = next_frame()).frame.kind != 0)
		n += taken.frame.kind == kind;
	return n;
}

#endif							/* ZKLOCK_FAKE_LIBRARY_H */
