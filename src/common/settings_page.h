/*-------------------------------------------------------------------------
 *
 * settings_page.h
 *
 * PostgreSQL has a backend read the configuration again when its next
 * statement comes.  The program of a session that holds locks cannot wait for
 * that: the servers that it is connected to may be gone by then.  And two
 * backends must never use lists of two ensembles.  So there is one list in
 * use: the one in this page of memory.  Backends read it when they open a
 * session, and programs follow it while the session lives.
 *
 * Only the postmaster writes the page, in the assign hooks of these settings.
 * PostgreSQL calls them one after the other while it reads its files, within
 * microseconds, and tells nobody when it has called the last one.  (The lease
 * worker would know the end of a reload.  But it may be switched off, or be
 * without a slot.)  So a reader takes the settings for whole when they
 * have been as they are for SETTINGS_QUIET_MS.  A postmaster that is stopped
 * in the middle for longer than that leaves half of a change to be read, for
 * example a certificate with the key of before.  That does no harm: a
 * connection that cannot be made with it is tried again, and the rest of the
 * change is read then.
 *
 * Nobody waits for anybody: a sequence number, which is odd while the
 * postmaster writes, tells a reader to come back later.  The memory is sealed:
 * a program that a hostile server has misled cannot write to it.
 *
 * libc only: neither PostgreSQL nor ZooKeeper.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SETTINGS_PAGE_H
#define ZKLOCK_SETTINGS_PAGE_H

#include <stdbool.h>
#include <stdint.h>

/* For so long settings must have stayed as they are to be taken for whole. */
#define SETTINGS_QUIET_MS 200

/*
 * Room for each of the texts, with its NUL.  A longer list of servers is no
 * value of zklock.servers.  With a longer text about TLS a session keeps what
 * it was opened with.
 */
#define SETTINGS_TEXT_SIZE (16 * 1024)

typedef struct SettingsPage SettingsPage;

/* What a reader has found there. */
typedef struct SettingsRead
{
	char		servers[SETTINGS_TEXT_SIZE];	/* as zklock.servers */
	char		tls[SETTINGS_TEXT_SIZE];	/* how to use TLS (program_tls.h); "":
											 * not at all */
	bool		has_tls;		/* that was not too long for its room, and is
								 * there */
} SettingsRead;

/*
 * Make the page, and a descriptor for programs: it is closed by exec(), and
 * nobody can write by it.  Children of this process do not have the memory.
 * NULL with errno.
 */
extern SettingsPage *settings_page_make(int *fd);

/*
 * Write these; tls may be NULL.  The list has room (SETTINGS_TEXT_SIZE).
 * Nothing is written if they are there already.
 */
extern void settings_page_write(SettingsPage *page, const char *servers,
								const char *tls);

/*
 * Map the page of that descriptor, to read it.  NULL if there is none, or it
 * is of another version.
 */
extern const SettingsPage *settings_page_map(int fd);

/*
 * Which state of the settings is in the page?  It is another number after each
 * change.  One load from memory.
 */
extern uint32_t settings_page_state(const SettingsPage *page);

/*
 * Read what is there.  Result: 0 if it was read, and state is its number; else
 * in how many milliseconds to come back, because it changes or has just
 * changed.  A text about TLS that is too long is told by has_tls.
 */
extern int64_t settings_page_read(const SettingsPage *page,
								  SettingsRead *settings, uint32_t *state);

/*
 * The servers that are there at the moment, whether they have just changed or
 * not, and in state the number to which they belong.  false if they are being
 * written all the time.
 */
extern bool settings_page_read_servers(const SettingsPage *page,
									   char servers[SETTINGS_TEXT_SIZE],
									   uint32_t *state);

#endif							/* ZKLOCK_SETTINGS_PAGE_H */
