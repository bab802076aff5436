/*
 * ends.h
 *	  Each file of a build for "make coverage" begins with it: where ours would end a
 *	  process without exit(), its counters are written first.
 */
#ifndef COVERAGE_ENDS_H
#define COVERAGE_ENDS_H

/* -O0, which PostgreSQL's flags do not expect. */
#undef _FORTIFY_SOURCE

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern void __gcov_dump(void);

/*
 * How long a program whose end a backend does not wait for may take to write its
 * counters.
 */
#define COVERAGE_PATIENCE_MS 500

/*
 * No signal may interrupt the writing: its handler would end the process, and wait for
 * ever for the lock of the counters, while others wait for the lock of their file.
 */
static void
coverage_block_signals(void)
{
	sigset_t	all;

	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
}

/*
 * The server's own _exit() cannot see this library's functions, so it is told, see
 * preload.c. Once for each of our files, which does no harm.
 */
__attribute__((constructor)) static void
coverage_tell(void)
{
	void		(**dump) (void) = (void (**) (void)) dlsym(RTLD_DEFAULT, "coverage_dump");

	if (dump != NULL)
		*dump = __gcov_dump;
	/* these are called before the counters are written */
	atexit(coverage_block_signals);
}

__attribute__((noreturn, unused)) static void
coverage_exit_at_once(int status)
{
	coverage_block_signals();
	__gcov_dump();
	_exit(status);
}

/* Is that process stopped, so that it would not come to its end? */
static inline int
coverage_is_stopped(pid_t pid)
{
	char		name[64];
	char		text[256] = "";
	const char *state;
	FILE	   *file;

	snprintf(name, sizeof(name), "/proc/%d/stat", (int) pid);
	file = fopen(name, "r");
	if (file == NULL)
		return 0;
	if (fgets(text, sizeof(text), file) == NULL)
		text[0] = '\0';
	fclose(file);
	state = strrchr(text, ')');
	return state != NULL && (state[2] == 'T' || state[2] == 't');
}

/*
 * A child that is on its way out gets the time to go it.  Not for who kills in order
 * to kill, as tests do.
 */
__attribute__((unused)) static int
coverage_kill(const char *caller, pid_t pid, int number)
{
	int			is_polite = number == SIGKILL && strstr(caller, "channel.c") != NULL;
	struct timespec pause = {0, 1000000};
	siginfo_t	info = {0};

	for (int i = 0; is_polite && i < COVERAGE_PATIENCE_MS; i++)
	{
		if (waitid(P_PID, (id_t) pid, &info, WEXITED | WNOWAIT | WNOHANG) != 0 ||
			info.si_pid == pid || coverage_is_stopped(pid))
			break;
		nanosleep(&pause, NULL);
	}
	return kill(pid, number);
}

#define _exit(status) coverage_exit_at_once(status)
#define kill(pid, number) coverage_kill(__FILE__, pid, number)

#endif							/* COVERAGE_ENDS_H */
