/*-------------------------------------------------------------------------
 *
 * channel.c
 *	  The socket pair and the process at its other end: its start, frames,
 *	  death, end.
 *
 * The one rule: the program is the backend's child, and whatever happens to
 * either of them, nothing is left behind.  A backend that ends closes its end
 * of the socket pair, however it ends, and that ends the program and its
 * session. A program that ends is reaped at once, by the handler of SIGCHLD
 * below.
 *
 * PostgreSQL leaves SIGCHLD at its default in backends: it is ignored, and
 * what COPY PROGRAM, archive commands and procedural languages start is
 * waited for by pid.  So the handler waits for no other pid than ours.  It
 * uses nothing but what may be used in a handler.
 *
 *-------------------------------------------------------------------------
 */
#include "channel.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * How long zklock_channel_flush() waits for a program that does not read.  It
 * may be that a busy machine gives it no time: one second was once too
 * little.
 */
#define FLUSH_MS 3000

/* Longest title of a program, with its NUL. */
#define TITLE_SIZE 128

/* How much is read at a time, if no longer frame is known to come. */
#define READ_SIZE (16 * 1024)

/*
 * Asked of the kernel for what is on its way to the program: the releases of
 * a thousand locks.  It grants less, as a rule; flushing then takes a little
 * longer.
 */
#define SEND_BUFFER_SIZE (1024 * 1024)

/*
 * Most child processes that the handler of SIGCHLD waits for: the program of
 * the current session, and those of earlier sessions that still run.  If there
 * are more, the program that is left out stays a zombie until this process
 * ends.
 */
#define CHILDREN_MAX 64

typedef struct Child
{
	volatile pid_t pid;			/* 0: none, or dead */
	SharedPage *volatile page;	/* of the current session, NULL otherwise */
	volatile sig_atomic_t is_dead;	/* valid while page is not NULL */
	volatile int status;		/* what it has ended with; valid if it is */
} Child;

/*
 * The programs of this process, and the handler of SIGCHLD that waits for them.
 * It is one thing for the process, as the handler is.
 */
static struct
{
	Child		list[CHILDREN_MAX];
	bool		is_watched;		/* is the handler installed?  Not if somebody
								 * else has one */
	volatile pid_t watcher;		/* the process that has installed it last */
}			children;

/* What programs inherit from this process. */
static struct
{
	/*
	 * How they are loaded, how names are looked up, what time it is, what the
	 * command of a passphrase needs, and nothing else.  NULL until it is kept.
	 */
	char	  **environment;
	int			settings_fd;	/* of the settings' page (settings_page.h); -1:
								 * there is none */
}			inherited = {.settings_fd = -1};

static int	make_page(SharedPage **page);
static int	raise_descriptor(int fd);
static int	spawn_program(const char *program, char *const arguments[],
						  int channel_fd, int page_fd, pid_t *pid);
static void handle_sigchld(int signal);
static Child *remember_child(pid_t pid, SharedPage *page);
static bool await_end(const ZkChannel *channel, int wait_ms);

/* ---------------------------------------------------------------------
 * Public functions
 * ---------------------------------------------------------------------
 */

void
zklock_channel_keep_environment(void)
{
	static const char *const prefixes[] = {
		"LD_", "RES_OPTIONS=", "LOCALDOMAIN=", "HOSTALIASES=", "FAKETIME",
		"HOME=", "PATH=",
		"OPENSSL_",				/* a policy of the machine, such as FIPS */
		"ASAN_OPTIONS=", "UBSAN_OPTIONS=", "LSAN_OPTIONS="
	};
	extern char **environ;
	size_t		count = 0;
	size_t		nchosen = 0;

	if (inherited.environment != NULL)
		return;
	while (environ != NULL && environ[count] != NULL)
		count++;
	inherited.environment = calloc(count + 1, sizeof(*inherited.environment));
	for (size_t i = 0; inherited.environment != NULL && i < count; i++)
		for (size_t j = 0; j < sizeof(prefixes) / sizeof(prefixes[0]); j++)
			if (strncmp(environ[i], prefixes[j], strlen(prefixes[j])) == 0)
			{
				inherited.environment[nchosen++] = strdup(environ[i]);
				break;
			}
}

void
zklock_channel_hand_on(int fd)
{
	inherited.settings_fd = fd;
}

bool
zklock_channel_open(ZkChannel *channel, const char *program,
					const char *title,...)
{
	ZkChannel	opened = {.state = ZK_CHANNEL_OPEN,.owner = getpid()};
	char		own_title[TITLE_SIZE];
	char	   *arguments[] = {own_title, NULL};
	va_list		args;
	int			size = SEND_BUFFER_SIZE;
	struct timeval patience = {.tv_sec = FLUSH_MS / 1000};
	int			fds[2] = {-1, -1};
	int			page_fd;
	int			error;

	va_start(args, title);
	vsnprintf(own_title, sizeof(own_title), title, args);
	va_end(args);
	page_fd = make_page(&opened.page);
	if (page_fd < 0)
		return false;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
		error = errno;
	else
	{
		page_fd = raise_descriptor(page_fd);
		fds[1] = raise_descriptor(fds[1]);
		zklock_channel_watch();
		error = EMFILE;
		if (page_fd >= 0 && fds[1] >= 0)
			error = spawn_program(program, arguments, fds[1], page_fd,
								  &opened.program);
	}
	close(page_fd);				/* any of them may be -1 */
	close(fds[1]);
	if (error != 0)
	{
		close(fds[0]);
		munmap(opened.page, sizeof(*opened.page));
		errno = error;
		return false;
	}
	setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	setsockopt(fds[0], SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	opened.fd = fds[0];
	opened.out = channel->out;
	*channel = opened;
	channel->child = remember_child(channel->program, channel->page);
	return true;
}

void
zklock_channel_flush(ZkChannel *channel)
{
	FrameBuffer *out = &channel->out;
	int64_t		deadline = protocol_now() + FLUSH_MS;

	if (channel->page == NULL)
		return;
	while (out->start < out->end && channel->state == ZK_CHANNEL_OPEN)
	{
		ssize_t		sent = send(channel->fd, out->bytes + out->start,
								out->end - out->start, MSG_NOSIGNAL);

		if (sent > 0)
		{
			frame_buffer_consume(out, (size_t) sent);
			deadline = protocol_now() + FLUSH_MS;
		}
		else if (errno != EINTR && errno != EAGAIN)
		{
			/* what it had to say before it ended is still to be read */
			(void) zklock_channel_receive(channel, true);
			zklock_channel_break(channel, ZK_CHANNEL_ENDED);
		}
		else if (errno == EAGAIN || protocol_now() >= deadline)
			zklock_channel_break(channel, ZK_CHANNEL_STUCK);
	}
}

/*
 * The program counts nflushed up behind all that it says, and the handler of
 * SIGCHLD counts it up when the program is dead.
 */
bool
zklock_channel_has_news(const ZkChannel *channel)
{
	return channel->page == NULL || channel->state != ZK_CHANNEL_OPEN ||
		channel->child == NULL || !children.is_watched ||
		atomic_load(&channel->page->nflushed) != channel->nflushed;
}

bool
zklock_channel_receive(ZkChannel *channel, bool is_forced)
{
	FrameBuffer *in = &channel->in;
	bool		is_dead;

	if (channel->page == NULL || channel->state != ZK_CHANNEL_OPEN)
		return true;
	if (!is_forced && !zklock_channel_has_news(channel))
		return false;
	channel->nflushed = atomic_load(&channel->page->nflushed);
	is_dead = channel->child != NULL && channel->child->is_dead;
	for (;;)
	{
		ssize_t		received;
		size_t		room;

		if (!frame_buffer_reserve(in, READ_SIZE))
		{
			zklock_channel_break(channel, ZK_CHANNEL_NO_MEMORY);
			return true;
		}
		room = in->size - in->end;
		received = recv(channel->fd, in->bytes + in->end, room, MSG_DONTWAIT);
		if (received > 0)
			in->end += (size_t) received;
		else if (received < 0 && errno == EINTR)
			continue;
		else if (received == 0 || errno != EAGAIN || is_dead)
			zklock_channel_break(channel, ZK_CHANNEL_ENDED);
		if (channel->state != ZK_CHANNEL_OPEN ||
			(received < (ssize_t) room && !is_dead) ||
			in->end - in->start > 2 * FRAME_MAX)
			return true;
	}
}

bool
zklock_channel_take(ZkChannel *channel, FrameTaken *taken)
{
	FrameVerdict verdict;

	if (channel->in.start == channel->in.end)
		return false;
	verdict = frame_take(&channel->in, FRAME_FROM_PROGRAM, taken);
	if (verdict == FRAME_WRONG_VERSION)
		zklock_channel_break(channel, ZK_CHANNEL_WRONG_VERSION);
	if (verdict == FRAME_INVALID)
		zklock_channel_break(channel, ZK_CHANNEL_GARBLED);
	if (verdict == FRAME_WRONG_VERSION || verdict == FRAME_INVALID)
		frame_buffer_free(&channel->in);
	return verdict == FRAME_COMPLETE;
}

void
zklock_channel_break(ZkChannel *channel, ZkChannelState state)
{
	assert(state != ZK_CHANNEL_OPEN);
	if (channel->page == NULL)
		return;
	if (channel->state == ZK_CHANNEL_OPEN)
		shutdown(channel->fd, SHUT_WR);

	/*
	 * What was known first counts; but what it has said before it ended may
	 * tell more.
	 */
	if (channel->state == ZK_CHANNEL_OPEN || channel->state == ZK_CHANNEL_ENDED)
		channel->state = state;
}

/*
 * Unless the handler of SIGCHLD has reaped it.  SIGCHLD is blocked meanwhile:
 * after that the pid may be another process's.
 */
void
zklock_channel_kill(ZkChannel *channel)
{
	Child	   *child = channel->child;
	sigset_t	sigchld;
	sigset_t	former;
	int			status = 0;

	if (child == NULL)
		return;
	sigemptyset(&sigchld);
	sigaddset(&sigchld, SIGCHLD);
	sigprocmask(SIG_BLOCK, &sigchld, &former);
	if (child->pid == channel->program)
	{
		kill(channel->program, SIGKILL);
		while (waitpid(channel->program, &status, 0) < 0 && errno == EINTR)
			;
		child->pid = 0;
		child->status = status;
	}
	sigprocmask(SIG_SETMASK, &former, NULL);
}

/*
 * The descriptor is closed in any case, so a program that is not waited for
 * finds the end of its input, too.  A program that has closed its end is about
 * to exit, or runs something else that must go.  So it is killed, and
 * waitpid() takes microseconds.
 */
int
zklock_channel_close(ZkChannel *channel, int wait_ms)
{
	Child	   *child = channel->child;

	frame_buffer_free(&channel->in);
	frame_buffer_free(&channel->out);
	if (channel->page == NULL || channel->owner != getpid())
		return 0;
	shutdown(channel->fd, SHUT_WR);
	if (child != NULL)
	{
		child->page = NULL;		/* no interrupt from now on */
		if (wait_ms == ZK_CHANNEL_KILL || await_end(channel, wait_ms))
			zklock_channel_kill(channel);
	}
	close(channel->fd);
	munmap(channel->page, sizeof(*channel->page));
	channel->page = NULL;
	channel->child = NULL;
	return child != NULL ? child->status : 0;
}

/*
 * Install the handler, unless somebody else has one: then each poll of the
 * channel costs a system call.
 */
void
zklock_channel_watch(void)
{
	struct sigaction now;
	struct sigaction ours = {
		.sa_handler = handle_sigchld,
		.sa_flags = SA_RESTART | SA_NOCLDSTOP
	};

	bool		is_known = sigaction(SIGCHLD, NULL, &now) == 0;

	if (is_known && children.is_watched && now.sa_handler == handle_sigchld)
		return;					/* as it was left: nothing was missed */
	if (is_known && now.sa_handler == SIG_DFL)
		sigaction(SIGCHLD, &ours, NULL);
	children.watcher = getpid();
	children.is_watched = sigaction(SIGCHLD, NULL, &now) == 0 &&
		now.sa_handler == handle_sigchld;
	handle_sigchld(SIGCHLD);	/* what was not waited for until now */
}

/* ---------------------------------------------------------------------
 * Helpers
 * ---------------------------------------------------------------------
 */

/*
 * A page to share, and the descriptor to share it with; -1 with errno.
 * Sealed: another process with the descriptor cannot take the memory away.
 */
static int
make_page(SharedPage **page)
{
	int			fd = memfd_create("zklock", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	void	   *mapped = MAP_FAILED;

	if (fd < 0)
		return -1;
	if (ftruncate(fd, sizeof(**page)) == 0 &&
		fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
		mapped = mmap(NULL, sizeof(**page), PROT_READ | PROT_WRITE, MAP_SHARED,
					  fd, 0);
	if (mapped == MAP_FAILED)
	{
		close(fd);				/* which succeeds, and leaves errno */
		return -1;
	}
	*page = mapped;
	atomic_store(&(*page)->alive_at, protocol_now());
	return fd;
}

/*
 * A descriptor above those that the program will have, so that dup2() to one
 * of these does not close another; -1 if there is none.
 */
static int
raise_descriptor(int fd)
{
	int			raised;

	if (fd > PROTOCOL_LAST_FD)
		return fd;
	raised = fcntl(fd, F_DUPFD_CLOEXEC, PROTOCOL_LAST_FD + 1);
	close(fd);
	return raised;
}

/*
 * Start the program; 0, or an errno.
 * posix_spawn() does not copy the page tables of large shared_buffers, as
 * fork() would.  The program has a process group of its own, because
 * pg_cancel_backend() and a terminal's Ctrl-C signal the whole group of the
 * backend.
 */
static int
spawn_program(const char *program, char *const arguments[], int channel_fd,
			  int page_fd, pid_t *pid)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t	signals;
	const int	copied[] = {
		[STDOUT_FILENO] = STDIN_FILENO, [STDERR_FILENO] = STDIN_FILENO,
		[PROTOCOL_CHANNEL_FD] = channel_fd, [PROTOCOL_PAGE_FD] = page_fd,
		[PROTOCOL_SETTINGS_FD] = inherited.settings_fd
	};
	const int	last = inherited.settings_fd >= 0 ? PROTOCOL_SETTINGS_FD : PROTOCOL_PAGE_FD;
	int			error;

	zklock_channel_keep_environment();
	if (inherited.environment == NULL)
		return ENOMEM;
	posix_spawnattr_init(&attributes);
	posix_spawn_file_actions_init(&actions);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK |
							 POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);

	/*
	 * Until the program is in its own group it may get signals that are meant
	 * for us.  They stay blocked until prepare_process() has set its handlers.
	 */
	sigfillset(&signals);
	posix_spawnattr_setsigmask(&attributes, &signals);
	posix_spawnattr_setsigdefault(&attributes, &signals);
	posix_spawnattr_setpgroup(&attributes, 0);
	error = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO,
											 "/dev/null", O_RDWR, 0);
	for (int fd = STDOUT_FILENO; fd <= last && error == 0; fd++)
		error = posix_spawn_file_actions_adddup2(&actions, copied[fd], fd);

	/*
	 * What else we have open is not for it: a file that is deleted would keep
	 * its space, and a pipe would never end for its reader.
	 */
	if (error == 0)
		error = posix_spawn_file_actions_addclosefrom_np(&actions, last + 1);
	if (error == 0)
		error = posix_spawn(pid, program, &actions, &attributes, arguments,
							inherited.environment);
	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&attributes);
	return error;
}

/* Our handler of SIGCHLD; see the head of this file. */
static void
handle_sigchld(int signal)
{
	int			error = errno;

	if (getpid() != children.watcher)
		return;					/* a child that was forked without exec */
	for (int i = 0; i < CHILDREN_MAX; i++)
	{
		Child	   *child = &children.list[i];
		SharedPage *page = child->page;
		uint32_t	under_way;
		int			status = 0;

		/* still running; what is no child of ours counts as dead */
		if (child->pid == 0 || waitpid(child->pid, &status, WNOHANG) == 0)
			continue;
		child->pid = 0;
		child->status = status;
		child->is_dead = true;
		if (page == NULL)
			continue;
		atomic_fetch_add(&page->nflushed, 1);

		/*
		 * The program may have died while it was sending the signal.  Nobody
		 * knows whether it has sent it.  A second SIGINT does no harm.
		 */
		under_way = INTERRUPT_UNDER_WAY;
		atomic_compare_exchange_strong(&page->loss_interrupt, &under_way,
									   INTERRUPT_WANTED);
		interrupt_send(page, getpid());
	}
	errno = error;
}

/*
 * Remember a program that was started; it may be dead already.  Result: its
 * entry, until its page is given back; NULL if there is no room.
 */
static Child *
remember_child(pid_t pid, SharedPage *page)
{
	Child	   *child = NULL;

	for (int i = 0; i < CHILDREN_MAX; i++)
		if (children.list[i].page == NULL && (child == NULL || child->pid != 0))
			child = &children.list[i];
	if (child == NULL)
		return NULL;
	child->pid = 0;
	child->is_dead = false;
	child->status = 0;
	child->page = page;
	child->pid = pid;
	handle_sigchld(SIGCHLD);
	return child;
}

/* Wait until the program has closed its end; false if that takes too long. */
static bool
await_end(const ZkChannel *channel, int wait_ms)
{
	int64_t		deadline = protocol_now() + wait_ms;
	struct pollfd ended = {channel->fd, 0, 0};
	int64_t		left = wait_ms;

	while (poll(&ended, 1, (int) left) != 1)
	{
		if (left == 0)
			return false;
		left = deadline - protocol_now();
		if (left < 0)
			left = 0;
	}
	return true;
}
