/*-------------------------------------------------------------------------
 *
 * test_settings_page.c
 *	  Unit test of src/common/settings_page.c: a reader of the page finds whole
 *	  settings, the newest, at the right time, and cannot write to it; nothing is left
 *	  of a page that the kernel refuses.
 *
 * The calls of the kernel that may be refused are functions of this file, which hand them
 * on to the kernel, or refuse them if the test says so.
 *
 *-------------------------------------------------------------------------
 */
#include "settings_page.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "protocol.h"
#include "tap.h"

/* The page as its maker and as a reader has it. */
static SettingsPage *page;
static const SettingsPage *reader;
static int	page_fd = -1;
static uint32_t state;
static SettingsRead found;

static int64_t now;

/* What is written while the clock is read. */
static const char *written_meanwhile;

/* Which calls are refused, with ENOSPC; of seals those that have one of these bits. */
static bool refuses_memfd;
static bool refuses_size;
static bool refuses_madvise;
static int	refused_seals;

/* Descriptor 0 is free once there is a file in memory. */
static bool frees_zero;

/* How often poll() was called, for how long in all, and when the writer has written. */
static int	npolls;
static int	polled_ms;
static int	written_at_poll;

/* ---------------------------------------------------------------------
 * In the place of the module's clock, and of the C library
 * ---------------------------------------------------------------------
 */

/* It stands until the test moves it. */
int64_t
protocol_now(void)
{
	const char *servers = written_meanwhile;

	written_meanwhile = NULL;
	if (servers != NULL)
		settings_page_write(page, servers, NULL);
	return now;
}

static int
refuse(void)
{
	errno = ENOSPC;
	return -1;
}

int
memfd_create(const char *name, unsigned int flags)
{
	int			fd = refuses_memfd ? refuse() : (int) syscall(SYS_memfd_create, name, flags);

	if (frees_zero)
		close(0);
	return fd;
}

int
ftruncate(int fd, off_t length)
{
	return refuses_size ? refuse() : (int) syscall(SYS_ftruncate, fd, length);
}

int
madvise(void *address, size_t length, int advice)
{
	return refuses_madvise ? refuse() : (int) syscall(SYS_madvise, address, length, advice);
}

int
fcntl(int fd, int command,...)
{
	va_list		args;
	long		arg;

	va_start(args, command);
	arg = va_arg(args, long);
	va_end(args);
	if (command == F_ADD_SEALS && ((int) arg & refused_seals) != 0)
		return refuse();
	return (int) syscall(SYS_fcntl, fd, command, arg);
}

/* The numbers of the page: its version, and the sequence. */
static _Atomic uint32_t *
numbers(void)
{
	return (_Atomic uint32_t *) page;
}

int
poll(struct pollfd *fds, nfds_t nfds, int timeout)
{
	npolls++;
	polled_ms += timeout;
	is_int(0, (long long) nfds, "no descriptor is waited for");
	if (npolls == written_at_poll)
		atomic_fetch_add(&numbers()[1], 1);
	return 0;
}

/* ---------------------------------------------------------------------
 * The tests
 * ---------------------------------------------------------------------
 */

/* How many descriptors and mappings of such pages this process has. */
static int
count_left(void)
{
	FILE	   *maps = fopen("/proc/self/maps", "r");
	DIR		   *fds = opendir("/proc/self/fd");
	char		line[4200];
	int			count = 0;

	if (maps == NULL || fds == NULL)
		abort();
	while (fgets(line, sizeof(line), maps) != NULL)
		count += strstr(line, "zklock settings") != NULL;
	while (readdir(fds) != NULL)
		count++;
	fclose(maps);
	closedir(fds);
	return count;
}

static void
make(void)
{
	int			lowest = fcntl(0, F_DUPFD, (long) PROTOCOL_LAST_FD + 1);
	int			before;

	close(lowest);
	before = count_left();
	now = 1000000;
	page = settings_page_make(&page_fd);
	is_int(before + 2, count_left(), "a page has one descriptor, and its maker one mapping");
	reader = page != NULL ? settings_page_map(page_fd) : NULL;
	ok(page != NULL && reader != NULL, "a page is made, and mapped");
	ok(page_fd > PROTOCOL_LAST_FD, "its descriptor is above those of a program");
	is_int(lowest, page_fd, "its descriptor is the lowest free one above those");
	ok(fcntl(page_fd, F_GETFD, 0L) & FD_CLOEXEC, "the descriptor of the page is closed by exec()");
	is_int(SETTINGS_QUIET_MS, settings_page_read(reader, &found, &state), "a new page has just changed");
}

static void
test_reading(void)
{
	static char too_long[SETTINGS_TEXT_SIZE + 1];
	uint32_t	before = settings_page_state(reader);

	settings_page_write(page, "zk1,zk2", NULL);
	ok(settings_page_state(reader) != before, "a change makes another state");
	now += SETTINGS_QUIET_MS - 1;
	is_int(1, settings_page_read(reader, &found, &state), "settings that have just changed are not read yet");
	settings_page_write(page, "zk1,zk2", "ca\ncert\n");
	is_int(SETTINGS_QUIET_MS, settings_page_read(reader, &found, &state), "settings that change again are not read yet either");
	now += SETTINGS_QUIET_MS;
	is_int(0, settings_page_read(reader, &found, &state), "settings are read when they have stayed for SETTINGS_QUIET_MS");
	is_str("zk1,zk2", found.servers, "the page has the servers that were written");
	is_str("ca\ncert\n", found.tls, "the page has the TLS settings that were written");
	is_int(settings_page_state(reader), state, "the state that was read is that of the page");

	before = state;
	settings_page_write(page, "zk1,zk2", "ca\ncert\n");
	is_int(before, settings_page_state(reader), "writing the same again makes no other state");

	settings_page_write(page, "zk3", "");
	ok(settings_page_read_servers(reader, found.servers, &state), "a reader that cannot wait reads a change at once");
	is_int(settings_page_state(reader), state, "the state that was read at once is that of the page");
	is_str("zk3", found.servers, "a reader that cannot wait gets the latest servers");
	now += SETTINGS_QUIET_MS;
	is_int(0, settings_page_read(reader, &found, &state), "other settings are read when they have stayed");
	is_str("zk3", found.servers, "the page has the other servers");
	is_str("", found.tls, "the page has no TLS settings any more");

	ok(found.has_tls, "no TLS settings are settings, too");
	memset(too_long, 'x', SETTINGS_TEXT_SIZE);
	settings_page_write(page, "zk2", too_long);
	now += SETTINGS_QUIET_MS;
	is_int(0, settings_page_read(reader, &found, &state), "a page whose TLS settings are too long is read");
	ok(!found.has_tls && found.tls[0] == '\0', "TLS settings too long for the page are not there");
	is_str("zk2", found.servers, "the servers are there without them");
	before = state;
	settings_page_write(page, "zk2", too_long);
	is_int(before, settings_page_state(reader), "writing such settings again makes no other state");
	too_long[SETTINGS_TEXT_SIZE - 1] = '\0';
	settings_page_write(page, "zk3", too_long);
	now += SETTINGS_QUIET_MS;
	is_int(0, settings_page_read(reader, &found, &state), "TLS settings that just fit are read");
	ok(found.has_tls, "TLS settings that just fit are there");
	is_str("zk3", found.servers, "the servers are read along with TLS settings that just fit");
	is_int(SETTINGS_TEXT_SIZE - 1, (int) strlen(found.tls), "TLS settings that just fit are read whole");
	settings_page_write(page, too_long, NULL);
	ok(settings_page_read_servers(reader, found.servers, &state), "a list that just fits is read");
	is_int(SETTINGS_TEXT_SIZE - 1, (int) strlen(found.servers), "a list that just fits is read whole");
}

/* The writer is not done, or comes in between. */
static void
test_changing(void)
{
	for (int i = 0; i < 3; i++)
	{
		char		servers[] = {'a' + (char) i, '\0'};

		settings_page_write(page, servers, NULL);
		ok(settings_page_read_servers(reader, found.servers, &state), "state %u is read at once", settings_page_state(reader));
		is_str(servers, found.servers, "the servers of each state are read");
	}
	is_int(0, npolls, "reading servers at once waits for nothing");

	now += SETTINGS_QUIET_MS;
	state = 0;
	written_meanwhile = "zk5";
	is_int(SETTINGS_QUIET_MS, settings_page_read(reader, &found, &state), "settings that change during the read are not read");
	is_int(0, state, "settings that change during the read give no state");

	atomic_fetch_add(&numbers()[1], 1);
	now += SETTINGS_QUIET_MS;
	is_int(SETTINGS_QUIET_MS, settings_page_read(reader, &found, &state), "settings that are being written are not read");
	ok(!settings_page_read_servers(reader, found.servers, &state), "a reader that cannot wait does not read settings that are being written");
	is_int(100, npolls, "a reader that cannot wait looks a hundred times");
	is_int(100, polled_ms, "a reader that cannot wait looks for a tenth of a second");
	npolls = 0;
	written_at_poll = 3;
	ok(settings_page_read_servers(reader, found.servers, &state), "a reader that cannot wait reads settings that are written soon");
	is_int(3, npolls, "a reader that cannot wait reads settings as soon as they are written");
	is_str("zk5", found.servers, "the servers");
}

static void
test_sealed(void)
{
	size_t		size = sizeof(SettingsRead);
	void	   *mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, page_fd, 0);

	ok(mapped == MAP_FAILED, "no reader can map it to write");
	ok(mprotect((void *) reader, size, PROT_READ | PROT_WRITE) != 0, "no reader can make its mapping writable");
	ok(write(page_fd, "x", 1) < 0, "no reader can write to the page");
	ok(ftruncate(page_fd, 0) != 0, "no reader can shrink the page");
	ok(ftruncate(page_fd, 1024 * 1024) != 0, "no reader can enlarge the page");
	is_int(F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL,
		   fcntl(page_fd, F_GET_SEALS, 0L) & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), "nobody can shrink or enlarge the page, or seal it");
	ok(fcntl(page_fd, F_ADD_SEALS, (long) F_SEAL_WRITE) != 0, "no reader can seal the page against its maker");
	settings_page_write(page, "zk4", NULL);
	now += SETTINGS_QUIET_MS;
	is_int(0, settings_page_read(reader, &found, &state), "the maker can still write the page");
	is_str("zk4", found.servers, "writes");
}

static void
test_others(void)
{
	int			status = -1;
	pid_t		child = fork();

	if (child == 0)
		_exit(msync(page, 1, MS_ASYNC) != 0 && errno == ENOMEM ? 0 : 1);
	ok(child > 0 && waitpid(child, &status, 0) == child && status == 0, "a forked child does not inherit the mapping");
	ok(settings_page_map(-1) == NULL, "there is no page without a descriptor");
	ok(settings_page_map(STDOUT_FILENO) == NULL, "a descriptor of any other file is no page");
}

/* A file that begins like a page, and a page of another version. */
static void
test_strangers(void)
{
	uint32_t	version = PROTOCOL_VERSION;
	int			fd = memfd_create("another", 0);
	int			before = count_left();

	ok(write(fd, &version, sizeof(version)) == sizeof(version), "a file");
	ok(settings_page_map(fd) == NULL, "a file of another size is no page");
	close(fd);
	numbers()[0]++;
	before = count_left();
	ok(settings_page_map(page_fd) == NULL, "a page of another version is not mapped");
	is_int(before, count_left(), "a page that is not mapped leaves nothing open");
	numbers()[0]--;
}

/* A page cannot be made: errno says why, and nothing is left of it. */
static void
test_refused(const char *what, bool *refuses)
{
	int			before = count_left();
	int			fd;

	*refuses = true;
	errno = 0;
	ok(settings_page_make(&fd) == NULL, "there is no page without %s", what);
	is_int(ENOSPC, errno, "errno tells why there is no page without %s", what);
	is_int(before, count_left(), "nothing is left of it");
	*refuses = false;
}

/* A page whose files have descriptor 0, and are found there. */
static void
test_zero(bool has_reader)
{
	int			saved = fcntl(0, F_DUPFD, (long) PROTOCOL_LAST_FD + 1);

	if (has_reader)
		frees_zero = true;
	else
		close(0);
	page = settings_page_make(&page_fd);
	frees_zero = false;
	ok(page != NULL && page_fd > PROTOCOL_LAST_FD, "a page is made when descriptor 0 is free");
	ok(syscall(SYS_fcntl, 0, F_GETFD) < 0, "descriptor 0 is free again");
	dup2(saved, 0);
	close(saved);
}

/* With this kernel, or as with one that lacks the newest seal. */
static void
test_all(void)
{
	npolls = polled_ms = written_at_poll = 0;
	make();
	test_reading();
	test_changing();
	test_sealed();
	test_others();
	test_strangers();
	close(page_fd);
	test_zero(false);
	close(page_fd);
}

int
main(void)
{
	bool		refuses_seals = false;

	test_all();
	refused_seals = 0x0010;		/* F_SEAL_FUTURE_WRITE */
	test_all();
	test_zero(true);
	close(page_fd);
	refused_seals = 0;

	test_refused("a file in memory", &refuses_memfd);
	test_refused("its size", &refuses_size);
	test_refused("the memory for itself", &refuses_madvise);
	refused_seals = F_SEAL_SEAL;
	test_refused("seals", &refuses_seals);
	return done_testing();
}
