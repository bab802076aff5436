/*-------------------------------------------------------------------------
 *
 * test_settings_page.c
 *	  Unit test of src/common/settings_page.c: a reader of the page finds whole
 *	  settings, the newest, at the right time, and cannot write to it.
 *
 *-------------------------------------------------------------------------
 */
#include "settings_page.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
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

/* In the place of the module's clock: it stands until the test moves it. */
int64_t
protocol_now(void)
{
	return now;
}

static void
make(void)
{
	now = 1000000;
	page = settings_page_make(&page_fd);
	reader = page != NULL ? settings_page_map(page_fd) : NULL;
	ok(page != NULL && reader != NULL, "a page is made, and mapped");
	ok(page_fd > PROTOCOL_LAST_FD, "its descriptor is above those of a program");
	ok(fcntl(page_fd, F_GETFD) & FD_CLOEXEC, "and is closed by exec()");
}

static void
test_reading(void)
{
	static char too_long[SETTINGS_TEXT_SIZE + 1];
	uint32_t	before = settings_page_state(reader);

	settings_page_write(page, "zk1,zk2", NULL);
	ok(settings_page_state(reader) != before, "a change is another state");
	now += SETTINGS_QUIET_MS - 1;
	is_int(1, settings_page_read(reader, &found, &state), "what has just changed is not read");
	settings_page_write(page, "zk1,zk2", "ca\ncert\n");
	is_int(SETTINGS_QUIET_MS, settings_page_read(reader, &found, &state), "the less if more is to come");
	now += SETTINGS_QUIET_MS;
	is_int(0, settings_page_read(reader, &found, &state), "but when it stays");
	is_str("zk1,zk2", found.servers, "the servers");
	is_str("ca\ncert\n", found.tls, "and TLS");
	is_int(settings_page_state(reader), state, "and the state that it was");

	before = state;
	settings_page_write(page, "zk1,zk2", "ca\ncert\n");
	is_int(before, settings_page_state(reader), "the same again is no change");

	settings_page_write(page, "zk3", "");
	ok(settings_page_read_servers(reader, found.servers), "who cannot wait reads what is there");
	is_str("zk3", found.servers, "the servers of the moment");
	now += SETTINGS_QUIET_MS;
	is_int(0, settings_page_read(reader, &found, &state), "other settings");
	is_str("zk3", found.servers, "the servers");
	is_str("", found.tls, "without TLS");

	memset(too_long, 'x', SETTINGS_TEXT_SIZE);
	settings_page_write(page, too_long, NULL);
	now += SETTINGS_QUIET_MS;
	ok(settings_page_read(reader, &found, &state) == INT64_MAX, "what has no room is not there");
	is_int(settings_page_state(reader), state, "and need not be looked for again");
	ok(!settings_page_read_servers(reader, found.servers), "nor for who cannot wait");
	too_long[SETTINGS_TEXT_SIZE - 1] = '\0';
	settings_page_write(page, "zk3", too_long);
	now += SETTINGS_QUIET_MS;
	is_int(0, settings_page_read(reader, &found, &state), "what has just room is");
	is_str("zk3", found.servers, "the servers");
	is_int(SETTINGS_TEXT_SIZE - 1, (int) strlen(found.tls), "and all of the other");
}

static void
test_sealed(void)
{
	size_t		size = sizeof(SettingsRead);
	void	   *mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, page_fd, 0);

	ok(mapped == MAP_FAILED, "no reader can map it to write");
	ok(mprotect((void *) reader, size, PROT_READ | PROT_WRITE) != 0, "or make his mapping one");
	ok(write(page_fd, "x", 1) < 0, "or write");
	ok(ftruncate(page_fd, 0) != 0, "or take it away");
	ok(fcntl(page_fd, F_ADD_SEALS, F_SEAL_WRITE) != 0, "or seal it against its maker");
	settings_page_write(page, "zk4", NULL);
	now += SETTINGS_QUIET_MS;
	is_int(0, settings_page_read(reader, &found, &state), "who still");
	is_str("zk4", found.servers, "writes");
}

static void
test_others(void)
{
	int			status = -1;
	pid_t		child = fork();

	if (child == 0)
		_exit(msync(page, 1, MS_ASYNC) != 0 && errno == ENOMEM ? 0 : 1);
	ok(child > 0 && waitpid(child, &status, 0) == child && status == 0, "a child has no part in it");
	ok(settings_page_map(-1) == NULL, "without a descriptor there is none");
	ok(settings_page_map(STDOUT_FILENO) == NULL, "nor is any file one");
}

int
main(void)
{
	make();
	test_reading();
	test_sealed();
	test_others();
	return done_testing();
}
