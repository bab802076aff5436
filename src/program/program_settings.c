/*-------------------------------------------------------------------------
 *
 * program_settings.c
 *	  Follows the settings page: a session that lives uses it from its next
 *	  connection on.
 *
 * An ensemble is moved to other servers while the session holds locks.  The
 * postmaster has the list in use in a page of memory (settings_page.h), which
 * it changes at a reload, and only for a list that has a server in common with
 * the one before (session_settings.c).  So the servers behind the new list are
 * those of the same ensemble, or the administrator was told otherwise
 * (docs/operations.md): nothing is asked of them first.
 *
 * The names of the new list are looked up, as those of the first one were, and
 * the library gets the addresses for its next connection.  The connection that
 * there is stays: a server that leaves the ensemble ends it when it stops.
 *
 * The settings of TLS count for the next connection, too.  Whether TLS is used
 * at all is decided when PostgreSQL starts.
 *
 *-------------------------------------------------------------------------
 */
#include "program.h"

#include <stdlib.h>
#include <string.h>

#include "program_names.h"
#include "program_tls.h"
#include "servers.h"
#include "settings_page.h"

/*
 * When other settings of TLS are tried again that did not work: their files
 * may be mended without a reload.
 */
#define TLS_AGAIN_MS 30000

static bool follow_tls(Following *following, const SettingsRead *settings);
static void follow_servers(Session *session, const char *servers);
static char *copy_text(const char *text);

/* What the page says may be newer than the frame: it is read at once. */
void
settings_begin(Session *session, const FrameTaken *opening)
{
	Following  *following = &session->settings;

	following->servers = copy_text(opening->blobs[0]);
	following->tls = copy_text(opening->blobs[3]);
	following->tls_again_at = INT64_MAX;
	if (following->page != NULL)
		following->state = settings_page_state(following->page) - 1;
}

void
settings_tick(Session *session, int64_t now)
{
	Following  *following = &session->settings;
	SettingsRead *settings;
	uint32_t	state = following->state;
	int64_t		wait_ms;

	if (following->page == NULL || following->servers == NULL ||
		session_is_ending(session))
		return;
	if (settings_page_state(following->page) == state &&
		now < following->tls_again_at)
	{
		program_wake_at(session, following->tls_again_at);
		return;
	}
	settings = program_need(malloc(sizeof(*settings)));
	wait_ms = settings_page_read(following->page, settings, &state);
	if (wait_ms > 0)
		program_wake_at(session, now + wait_ms);
	else
	{
		following->state = state;
		following->tls_again_at = INT64_MAX;
		if (!follow_tls(following, settings))
			following->tls_again_at = now + TLS_AGAIN_MS;
		follow_servers(session, settings->servers);
		program_wake_at(session, following->tls_again_at);
	}
	free(settings);
}

/* false if they do not work now: those of before stay. */
static bool
follow_tls(Following *following, const SettingsRead *settings)
{
	char		why[TLS_WHY_SIZE];

	if (!settings->has_tls || strcmp(settings->tls, following->tls) == 0)
		return true;
	if (!tls_begin(settings->tls, why))
		return false;
	free(following->tls);
	following->tls = copy_text(settings->tls);
	return true;
}

/* An empty list is there before the first one, when nobody has a session. */
static void
follow_servers(Session *session, const char *servers)
{
	Following  *following = &session->settings;
	ServerList	list;
	char		why[SERVERS_WHY_SIZE];
	Names	   *names;

	if (strcmp(servers, following->servers) == 0 ||
		!servers_parse(servers, &list, why))
		return;
	free(following->servers);
	following->servers = copy_text(servers);
	names = names_begin(&list);
	names_look_up(names);
	session_adopt(session, names);
}

static char *
copy_text(const char *text)
{
	return program_need(strdup(text != NULL ? text : ""));
}
