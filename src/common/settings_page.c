/*-------------------------------------------------------------------------
 *
 * settings_page.c
 *	  The settings page: the postmaster shows the servers in use, and the
 *	  settings of TLS, to all processes.
 *
 * Linked into both.  libc only; the one state is in the page.
 *
 *-------------------------------------------------------------------------
 */
#include "settings_page.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "protocol.h"

#ifndef F_SEAL_FUTURE_WRITE		/* Linux 5.1 */
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

/* For so many milliseconds a list is waited for that is being written. */
#define WRITING_MS 100

struct SettingsPage
{
	uint32_t	version;		/* PROTOCOL_VERSION of its maker */
	_Atomic uint32_t sequence;	/* odd while it is written */
	_Atomic int64_t changed_at; /* protocol_now() */
	SettingsRead settings;
};

static int	seal_page(int fd);

SettingsPage *
settings_page_make(int *fd)
{
	int			made = memfd_create("zklock settings",
									MFD_CLOEXEC | MFD_ALLOW_SEALING);
	SettingsPage *page = MAP_FAILED;

	if (made < 0)
		return NULL;
	if (ftruncate(made, sizeof(*page)) == 0)
		page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED,
					made, 0);
	if (page == MAP_FAILED)
	{
		close(made);			/* which succeeds, and leaves errno */
		return NULL;
	}
	page->version = PROTOCOL_VERSION;
	page->settings.has_tls = true;
	atomic_store(&page->changed_at, protocol_now());
	*fd = seal_page(made);
	if (*fd < 0 || madvise(page, sizeof(*page), MADV_DONTFORK) != 0)
	{
		int			why = errno;

		close(*fd);				/* or -1 */
		munmap(page, sizeof(*page));
		errno = why;
		return NULL;
	}
	return page;
}

/*
 * From now on nobody can make a mapping that can be written to, or change the
 * size.  A kernel that is too old for that seal has another descriptor for
 * readers, one that was not opened to write.  Result: the descriptor, above
 * all that a program has when it starts; the other one is closed.
 */
static int
seal_page(int fd)
{
	char		path[64];
	int			raised = -1;

	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW |
			  F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) == 0)
		raised = fcntl(fd, F_DUPFD_CLOEXEC, PROTOCOL_LAST_FD + 1);
	else if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW |
				   F_SEAL_SEAL) == 0)
	{
		int			reader;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		reader = open(path, O_RDONLY | O_CLOEXEC);
		if (reader >= 0)
		{
			raised = fcntl(reader, F_DUPFD_CLOEXEC, PROTOCOL_LAST_FD + 1);
			close(reader);
		}
	}
	close(fd);
	return raised;
}

void
settings_page_write(SettingsPage *page, const char *servers, const char *tls)
{
	SettingsRead *settings = &page->settings;
	bool		has_tls;

	assert(strlen(servers) < sizeof(settings->servers));
	tls = tls != NULL ? tls : "";
	has_tls = strlen(tls) < sizeof(settings->tls);
	if (!has_tls)
		tls = "";
	if (has_tls == settings->has_tls &&
		strcmp(servers, settings->servers) == 0 &&
		strcmp(tls, settings->tls) == 0)
		return;
	atomic_fetch_add(&page->sequence, 1);
	atomic_thread_fence(memory_order_seq_cst);
	settings->has_tls = has_tls;
	strcpy(settings->servers, servers);
	strcpy(settings->tls, tls);
	atomic_store(&page->changed_at, protocol_now());
	atomic_thread_fence(memory_order_seq_cst);
	atomic_fetch_add(&page->sequence, 1);
}

const SettingsPage *
settings_page_map(int fd)
{
	struct stat status;
	const SettingsPage *page;

	if (fstat(fd, &status) != 0 || status.st_size != sizeof(*page))
		return NULL;
	page = mmap(NULL, sizeof(*page), PROT_READ, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		return NULL;
	if (page->version == PROTOCOL_VERSION)
		return page;
	munmap((void *) page, sizeof(*page));
	return NULL;
}

uint32_t
settings_page_state(const SettingsPage *page)
{
	return atomic_load(&page->sequence);
}

int64_t
settings_page_read(const SettingsPage *page, SettingsRead *settings,
				   uint32_t *state)
{
	uint32_t	sequence = atomic_load(&page->sequence);
	int64_t		quiet_at = atomic_load(&page->changed_at) + SETTINGS_QUIET_MS;
	int64_t		now = protocol_now();

	if (sequence % 2 != 0)
		return SETTINGS_QUIET_MS;
	if (now < quiet_at)
		return quiet_at - now;
	atomic_thread_fence(memory_order_seq_cst);
	memcpy(settings, &page->settings, sizeof(*settings));
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load(&page->sequence) != sequence)
		return SETTINGS_QUIET_MS;
	*state = sequence;
	return 0;
}

/*
 * To write takes microseconds: a postmaster that takes longer was not given
 * the processor meanwhile.
 */
bool
settings_page_read_servers(const SettingsPage *page,
						   char servers[SETTINGS_TEXT_SIZE], uint32_t *state)
{
	for (int i = 0; i < WRITING_MS; i++)
	{
		uint32_t	sequence = atomic_load(&page->sequence);

		atomic_thread_fence(memory_order_seq_cst);
		memcpy(servers, page->settings.servers, SETTINGS_TEXT_SIZE);
		atomic_thread_fence(memory_order_seq_cst);
		if (sequence % 2 == 0 && atomic_load(&page->sequence) == sequence)
		{
			*state = sequence;
			return true;
		}
		poll(NULL, 0, 1);
	}
	return false;
}
