/*-------------------------------------------------------------------------
 *
 * test_program_settings.c
 *	  Unit test of src/program/program_settings.c: a session that lives follows the list
 *	  of servers in use, and the settings of TLS, from its next connection on
 *	  (fake_library.h).
 *
 *-------------------------------------------------------------------------
 */
#include "fake_library.h"

#include "program_names.h"
#include "settings_page.h"

#define FOUR THREE ",127.0.0.1:4"

static SettingsPage *page;
static int	page_fd;

/* A session that was opened with that, and is connected. */
static void
begin(const char *tls)
{
	FrameTaken	opening = opening_of(THREE);

	opening.blobs[3] = tls;
	settings_page_write(page, THREE, tls);
	begin_session();
	session->settings.page = settings_page_map(page_fd);
	open_with(&opening);
	connect_now();
}

static void
turn(int64_t ms)
{
	boot_ms += ms;
	session->wake_at = INT64_MAX;
	settings_tick(session, boot_ms);
}

static int
count_servers(void)
{
	return names_list(session->names)->nservers;
}

static void
test_servers(void)
{
	begin(NULL);
	turn(SETTINGS_QUIET_MS);
	is_int(3, count_servers(), "the list with which the session was opened stays");
	is_int(INT64_MAX, session->wake_at, "and nothing is to be done");
	settings_page_write(page, FOUR, NULL);
	turn(0);
	is_int(boot_ms + SETTINGS_QUIET_MS, session->wake_at, "a page that has just changed is read later");
	is_int(3, count_servers(), "and changes nothing until then");
	turn(SETTINGS_QUIET_MS - 1);
	is_int(3, count_servers(), "it is not read a millisecond too early");
	turn(1);
	is_int(4, count_servers(), "the list of the page is used");
	ok(session->link.attempt.cut == LINK_NOT_CUT && session->link.is_up, "the connection stays");
	ok(session->link.servers.is_late, "the library gets the addresses for the next one");
	is_str(FOUR, session->settings.servers, "it is the list in use");
	is_int(INT64_MAX, session->wake_at, "and nothing is to be done");

	settings_page_write(page, "", NULL);
	turn(SETTINGS_QUIET_MS);
	is_int(4, count_servers(), "a page that names no server changes nothing");

	/* Opened while the page was about to change. */
	settings_page_write(page, FOUR, NULL);
	begin_session();
	session->settings.page = settings_page_map(page_fd);
	open_with(&(FrameTaken)
			  {
				  .frame.u.open = {.backend_pid = 999999999,.session_timeout_ms = TIMEOUT_MS},.blobs = {THREE}
			  });
	/* the clock began anew, behind the change of the page */
	turn(10 * SETTINGS_QUIET_MS);
	is_int(4, count_servers(), "a session that was opened with a former list has that of the page");
}

static void
test_none(void)
{
	open_and_connect(THREE);
	turn(0);
	is_int(INT64_MAX, session->wake_at, "without a page nothing is to be done");
	is_int(3, count_servers(), "and the servers stay");

	begin_session();
	session->settings.page = settings_page_map(page_fd);
	turn(SETTINGS_QUIET_MS);
	ok(session->names == NULL, "before a session is opened it has no servers");

	begin(NULL);
	session->orphaned_at = boot_ms;
	settings_page_write(page, FOUR, NULL);
	turn(SETTINGS_QUIET_MS);
	is_int(3, count_servers(), "a session that is to be closed follows no list");
}

static void
test_tls(void)
{
	static char too_long[SETTINGS_TEXT_SIZE + 1];

	begin("files");
	settings_page_write(page, THREE, "other files");
	turn(SETTINGS_QUIET_MS);
	is_str("other files", session->settings.tls, "other settings of TLS are used");
	is_int(INT64_MAX, session->wake_at, "and nothing is to be done");

	around.bad_files = "There is no such file";
	settings_page_write(page, FOUR, "bad files");
	turn(SETTINGS_QUIET_MS);
	is_str("other files", session->settings.tls, "settings that do not work are not used");
	is_int(4, count_servers(), "the servers are used all the same");
	is_int(boot_ms + 30000, session->wake_at, "the settings are tried again");
	turn(29999);
	is_str("other files", session->settings.tls, "not before");
	is_int(boot_ms + 1, session->wake_at, "but then");
	around.bad_files = "";
	turn(1);
	is_str("bad files", session->settings.tls, "settings whose files were mended are used");
	is_int(INT64_MAX, session->wake_at, "and nothing is to be done");

	memset(too_long, 'x', SETTINGS_TEXT_SIZE);
	settings_page_write(page, FOUR, too_long);
	turn(SETTINGS_QUIET_MS);
	is_str("bad files", session->settings.tls, "settings that are not in the page change nothing");
}

int
main(void)
{
	/* above the descriptors of the program */
	page = settings_page_make(&page_fd);
	ok(page != NULL, "a page is made");
	test_servers();
	test_none();
	test_tls();
	return done_testing();
}
