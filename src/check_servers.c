/*-------------------------------------------------------------------------
 *
 * check_servers.c
 *	  zk_check(): what the servers say without a session.
 *
 *-------------------------------------------------------------------------
 */
#include "check_private.h"

#include <arpa/inet.h>

#include "lib/stringinfo.h"
#include "miscadmin.h"

#include "client_request.h"
#include "nodedata.h"

/*
 * How long the servers are waited for, when all of it has a second; and with
 * a session, which is a question of connect_timeout.
 */
#define ANSWER_MS 600
#define ANSWER_FULL_MS 2000

/* An answer that took longer is worth a note. */
#define SLOW_US 100000

/* More of the connections that a server allows is worth a warning, percent. */
#define CROWDED_PERCENT 80

/* syncLimit * tickTime if nobody has changed it. */
#define DEFAULT_SYNC_MS 10000

static const ServerReport *best_report(const Check *check, int server);
static void put_server(Check *check, int server);
static void put_report(Check *check, const ServerReport *report);
static char *server_item(const Check *check, int server);
static const char *mode_name(ServerMode mode);
static bool serves(const ServerReport *report);
static int	count_mode(const Check *check, ServerMode mode);
static bool is_counted(const Check *check, int server);
static bool has_no_quorum(const Check *check);
static bool is_address(const char *host);
static bool is_crowded(const ServerReport *report);
static bool is_tighter(const ServerReport *report, const ServerReport *other);
static bool has_known_bugs(const char *release);
static bool is_asked(const Check *check);

/* Ask them.  The program is the next thing that may be broken. */
void
check_probe(Check *check)
{
	int			left = (int) (check->deadline - zklock_client_now());
	char		why[256];

	if (check->program == NULL)
		return;
	if (check->servers[0] == '\0' ||
		!servers_parse(check->servers, &check->list, why, sizeof(why)))
	{
		check->servers = "";
		return;
	}
	zklock_probe_servers(check->program, check->servers,
						 !check->has_session ? ANSWER_MS :
						 Min(ANSWER_FULL_MS, Max(left / 2, 100)),
						 &check->probe);
	if (check->probe.error != NULL)
		check_put(check, "program", CHECK_ERROR, check->probe.hint, "%s",
				  zklock_nodedata_printable(check->probe.error));
	else
		check_put(check, "program", CHECK_OK, NULL,
				  "\"%s\" runs, protocol %d, ZooKeeper's client library %s",
				  zklock_nodedata_printable(check->program), PROTOCOL_VERSION,
				  zklock_nodedata_printable(check->probe.library));
	for (int i = 0; i < check->list.nservers; i++)
	{
		const ServerReport *report = best_report(check, i);

		if (report == NULL)
			continue;
		check->nserving += serves(report);
		check->nreached += report->verdict >= ASK_CLOSED;
	}
}

void
check_servers(Check *check)
{
	for (int i = 0; is_asked(check) && i < check->list.nservers; i++)
		put_server(check, i);
}

/* The rows of one server of the list: one for each address that answered. */
static void
put_server(Check *check, int server)
{
	int			count = 0;

	for (int i = 0; i < check->probe.nreports; i++)
		if (check->probe.reports[i].server == server)
		{
			put_report(check, &check->probe.reports[i]);
			count++;
		}
	if (count == 0)
		check_put(check, server_item(check, server),
				  check->nserving > 0 ? CHECK_WARNING : CHECK_ERROR,
				  is_address(check->list.servers[server].host) ?
				  "The machine is too busy: try again. zk_check(true) waits longer." :
				  "Look into the DNS of this machine; or name the server by its address.",
				  "nothing was heard of it in time");
}

static void
put_report(Check *check, const ServerReport *report)
{
	CheckState	trouble = check->nserving > 0 ? CHECK_WARNING : CHECK_ERROR;
	char	   *item = server_item(check, report->server);
	const char *named = report->address[0] != '\0' ? report->address :
		check->list.servers[report->server].host;
	char	   *address = zklock_nodedata_printable(named);
	char	   *said = zklock_nodedata_printable(report->said);

	switch (report->verdict)
	{
		case ASK_PROGRAM:
		case ASK_SETTINGS:
		case ASK_CONNECTIONS:
			break;				/* nothing that a server is */
		case ASK_NOT_ASKED:
			check_put(check, item, trouble,
					  "See the limits of processes and memory (docs/operations.md, Processes).",
					  "it could not be asked: %s", said);
			break;
		case ASK_UNRESOLVED:
			check_put(check, item, trouble,
					  "Correct the name in zklock.servers, or the DNS.",
					  "its name has no address: %s", said);
			break;
		case ASK_UNREACHABLE:
			check_put(check, item, trouble,
					  "Start the server, or correct its port in zklock.servers.",
					  "%s cannot be reached: %s", address, said);
			break;
		case ASK_NO_CONNECTION:
			check_put(check, item, trouble,
					  "Is the machine up? Look for a firewall in between.",
					  "%s does not answer: no connection in time", address);
			break;
		case ASK_CLOSED:
			check_put(check, item, trouble,
					  "maxClientCnxns may be reached there: raise it. Or it wants TLS, which zklock does not speak, or is no ZooKeeper.",
					  "%s closes connections without a word", address);
			break;
		case ASK_SILENT:
			check_put(check, item, trouble,
					  "Is it a ZooKeeper? Then it hangs: see its log, and restart it.",
					  "%s takes connections and says nothing", address);
			break;
		case ASK_STRANGER:
			check_put(check, item, CHECK_ERROR,
					  "Correct the port in zklock.servers.",
					  "%s is not a ZooKeeper; it said \"%s\"", address,
					  zklock_nodedata_quotable(report->said));
			break;
		case ASK_IDLE:
			check_put(check, item, trouble,
					  "It has no quorum, or is just starting: start the other servers; see its log.",
					  "%s is a ZooKeeper that serves nobody", address);
			break;
		case ASK_SERVING:
			check_put(check, item, report->mode == SERVER_READ_ONLY ? trouble :
					  report->latency_us > SLOW_US ? CHECK_NOTE : CHECK_OK,
					  report->mode == SERVER_READ_ONLY ?
					  "It has no quorum: start the other servers." :
					  report->latency_us > SLOW_US ?
					  "Look into the network and the server's load." : NULL,
					  "%s is a %s, release %s, answers in %.1f ms", address,
					  mode_name(report->mode),
					  zklock_nodedata_printable(report->release),
					  report->latency_us / 1000.0);
			break;
	}
}

/* Do they make an ensemble, and what can it bear? */
void
check_ensemble(Check *check)
{
	int			nservers = check->list.nservers;
	int			nalone = count_mode(check, SERVER_STANDALONE);
	int			nleaders = count_mode(check, SERVER_LEADER);
	int			nmembers = nleaders + count_mode(check, SERVER_FOLLOWER) +
		count_mode(check, SERVER_OBSERVER);

	if (!is_asked(check))
		return;
	if (check->nserving == 0)
		check_put(check, "ensemble", CHECK_ERROR,
				  "Until then no lock can be had. See the rows of the servers.",
				  check->nreached == 0 ?
				  "none of the %d servers can be reached" :
				  has_no_quorum(check) ?
				  "none of the %d servers serves: no quorum" :
				  "none of the %d servers serves", nservers);
	else if (nalone > 1 || (nalone > 0 && nmembers > 0))
		check_put(check, "ensemble", CHECK_ERROR,
				  "Name the servers of one ensemble in zklock.servers: the same name is another lock in each.",
				  "the servers are not of one ensemble: %d standalone, %d members",
				  nalone, nmembers);
	else if (nleaders > 1)
		check_put(check, "ensemble", CHECK_WARNING,
				  "Try again. If it stays so, zklock.servers names several ensembles: the same name is another lock in each.",
				  "%d of the servers are leaders: an election may be under way",
				  nleaders);
	else if (check->nserving < nservers)
		check_put(check, "ensemble", CHECK_WARNING,
				  "See the rows of the other servers.",
				  "only %d of %d servers serve", check->nserving, nservers);
	else if (nalone == 1)
		check_put(check, "ensemble", CHECK_NOTE,
				  "Run three servers where locks must survive the loss of one.",
				  "a single server");
	else if (nservers > 1 && nservers % 2 == 0)
		check_put(check, "ensemble", CHECK_NOTE,
				  "An odd number bears as much, and needs a smaller quorum.",
				  "all %d servers serve: an even number", nservers);
	else
		check_put(check, "ensemble", CHECK_OK, NULL,
				  nservers == 1 ? "the one server named serves" :
				  "all %d servers serve", nservers);
}

/* Releases of the servers, which should be the same. */
void
check_releases(Check *check)
{
	StringInfoData releases;
	int			nreleases = 0;
	bool		has_bugs = false;

	initStringInfo(&releases);
	for (int i = 0; i < check->probe.nreports; i++)
	{
		const ServerReport *report = &check->probe.reports[i];
		bool		is_known = report->verdict != ASK_SERVING;

		for (int j = 0; j < i && !is_known; j++)
			is_known = check->probe.reports[j].verdict == ASK_SERVING &&
				strcmp(check->probe.reports[j].release, report->release) == 0;
		if (is_known)
			continue;
		appendStringInfo(&releases, "%s%s", nreleases++ > 0 ? ", " : "",
						 zklock_nodedata_printable(report->release));
		has_bugs |= has_known_bugs(report->release);
	}
	if (nreleases == 0)
		return;
	check_put(check, "release", has_bugs || nreleases > 1 ? CHECK_NOTE : CHECK_OK,
			  has_bugs ? "Upgrade the servers. zklock copes with it, at the cost of a request where no answer comes." :
			  nreleases > 1 ? "Finish the upgrade of the servers." : NULL,
			  "servers of release %s%s", releases.data,
			  has_bugs ? ", in which a change that is agreed upon may stay unseen until the next one (ZOOKEEPER-4537)" : "");
}

/* maxClientCnxns, which all clusters behind one address share. */
void
check_connections(Check *check)
{
	const ServerReport *shown = NULL;

	if (!is_asked(check) || check->nserving == 0)
		return;
	for (int i = 0; i < check->probe.nreports; i++)
	{
		const ServerReport *report = &check->probe.reports[i];

		if (report->verdict == ASK_SERVING && report->max_connections >= 0 &&
			(shown == NULL || is_tighter(report, shown)))
			shown = report;
	}
	if (shown == NULL)
		check_put(check, "connections", CHECK_NOTE,
				  "Compare maxClientCnxns (60 by default) of the servers with the sum of max_connections behind one address; or add conf and cons to 4lw.commands.whitelist.",
				  "how many the servers allow cannot be known: they do not answer \"conf\"");
	else if (shown->max_connections == 0)
		check_put(check, "connections", CHECK_OK, NULL,
				  shown->nconnections < 0 ?
				  "the servers allow any number from an address" :
				  "the servers allow any number from an address; %d of this one are open at one of them",
				  shown->nconnections);
	else if (is_crowded(shown))
		check_put(check, "connections", CHECK_WARNING,
				  "Raise maxClientCnxns of the servers, set it to 0, or use a pooler.",
				  "a server allows %d from this address, and %d are open",
				  shown->max_connections, shown->nconnections);
	else if (shown->nconnections < 0)
		check_put(check, "connections", CHECK_NOTE,
				  "Compare it with the sum of max_connections behind that address; or add cons to 4lw.commands.whitelist.",
				  "a server allows %d from this address; how many are open is not known; max_connections is %d",
				  shown->max_connections, MaxConnections);
	else
		check_put(check, "connections",
				  MaxConnections > shown->max_connections ?
				  CHECK_NOTE : CHECK_OK,
				  MaxConnections > shown->max_connections ?
				  "Raise maxClientCnxns of the servers, or set it to 0, if so many backends may lock at a time." :
				  NULL,
				  "a server allows %d from this address, %d are open; max_connections is %d",
				  shown->max_connections, shown->nconnections,
				  MaxConnections);
}

static bool
is_crowded(const ServerReport *report)
{
	return report->max_connections > 0 && report->nconnections >= 0 &&
		(int64) report->nconnections * 100 >=
		(int64) report->max_connections * CROWDED_PERCENT;
}

/*
 * Is that one, of those whose limit is known, more worth telling?  One that
 * is crowded; then that with the lower limit; then that with more open.
 */
static bool
is_tighter(const ServerReport *report, const ServerReport *other)
{
	if (is_crowded(report) != is_crowded(other))
		return is_crowded(report);
	if (report->max_connections == other->max_connections)
		return report->nconnections > other->nconnections;
	return report->max_connections > 0 &&
		(other->max_connections == 0 ||
		 report->max_connections < other->max_connections);
}

/* What is asked for, against what the servers are set to. */
void
check_timeouts(Check *check)
{
	int			asked = check_setting_int("zklock.session_timeout");
	int			sync_ms;
	int			min_ms;
	int			max_ms;
	int			granted;

	if (!is_asked(check) || check->nserving == 0)
		return;
	check_read_timeouts(check, &sync_ms, &min_ms, &max_ms);
	granted = Max(asked, min_ms);
	if (max_ms > 0)
		granted = Min(granted, max_ms);
	if (granted != asked)
		check_put(check, "session timeout", CHECK_WARNING,
				  "Set zklock.session_timeout to what they grant, or minSessionTimeout and maxSessionTimeout (2 and 20 ticks by default) of the servers.",
				  "%d ms are asked for, the servers grant %d to %d ms", asked,
				  min_ms, max_ms);
	else if (sync_ms > 0 && granted <= sync_ms)
		check_put(check, "session timeout", CHECK_WARNING,
				  "Set zklock.session_timeout to more than syncLimit * tickTime of the ensemble.",
				  "%d ms are not more than syncLimit * tickTime, %d ms",
				  granted, sync_ms);
	else if (max_ms == 0)
		check_put(check, "session timeout",
				  asked <= DEFAULT_SYNC_MS ? CHECK_NOTE : CHECK_OK,
				  asked <= DEFAULT_SYNC_MS ?
				  "Compare zklock.session_timeout with syncLimit * tickTime of the ensemble, which it must exceed (10 s by default); or add conf to 4lw.commands.whitelist." :
				  NULL,
				  "%d ms are asked for; syncLimit and tickTime cannot be known, for the servers do not answer \"conf\"",
				  asked);
	else if (sync_ms > 0)
		check_put(check, "session timeout", CHECK_OK, NULL,
				  "%d ms, more than syncLimit * tickTime, %d ms", asked,
				  sync_ms);
	else
		check_put(check, "session timeout", CHECK_OK, NULL,
				  "%d ms, within what the servers grant", asked);
}

void
check_read_timeouts(const Check *check, int *sync_ms, int *min_ms,
					int *max_ms)
{
	*sync_ms = *min_ms = *max_ms = 0;
	for (int i = 0; i < check->probe.nreports; i++)
	{
		const ServerReport *report = &check->probe.reports[i];

		if (report->verdict != ASK_SERVING)
			continue;
		if (report->tick_ms > 0 && report->sync_limit > 0 &&
			report->mode != SERVER_STANDALONE &&
			report->sync_limit < INT_MAX / report->tick_ms)
			*sync_ms = Max(*sync_ms, report->tick_ms * report->sync_limit);
		*min_ms = Max(*min_ms, report->min_timeout_ms);
		if (report->max_timeout_ms > 0 &&
			(*max_ms == 0 || report->max_timeout_ms < *max_ms))
			*max_ms = report->max_timeout_ms;
	}
}

bool
check_may_connect(const Check *check)
{
	bool		is_possible = !is_asked(check);

	for (int i = 0; i < check->list.nservers && !is_possible; i++)
	{
		const ServerReport *report = best_report(check, i);

		is_possible = report == NULL || report->verdict == ASK_NOT_ASKED ||
			report->verdict == ASK_CLOSED ||
			report->verdict == ASK_SILENT || serves(report);
	}
	return is_possible;
}

/* ---------------------------------------------------------------------
 * Helpers
 * ---------------------------------------------------------------------
 */

/* Was anybody asked? */
static bool
is_asked(const Check *check)
{
	return check->program != NULL && check->servers[0] != '\0' &&
		check->probe.error == NULL;
}

/* What the best of its addresses said; NULL: nothing was heard of any. */
static const ServerReport *
best_report(const Check *check, int server)
{
	const ServerReport *best = NULL;

	for (int i = 0; i < check->probe.nreports; i++)
	{
		const ServerReport *report = &check->probe.reports[i];

		if (report->server == server &&
			(best == NULL || report->verdict > best->verdict ||
			 (report->verdict == best->verdict && !serves(best))))
			best = report;
	}
	return best;
}

static char *
server_item(const Check *check, int server)
{
	const Server *named = &check->list.servers[server];

	return psprintf(strchr(named->host, ':') != NULL ?
					"server [%s]:%d" : "server %s:%d", named->host,
					named->port);
}

static const char *
mode_name(ServerMode mode)
{
	switch (mode)
	{
		case SERVER_MODE_UNKNOWN:
			break;
		case SERVER_STANDALONE:
			return "standalone server";
		case SERVER_LEADER:
			return "leader";
		case SERVER_FOLLOWER:
			return "follower";
		case SERVER_OBSERVER:
			return "observer";
		case SERVER_READ_ONLY:
			return "server that only reads";
	}
	return "server of an unknown kind";
}

/* A session, that is: one that only reads grants us none. */
static bool
serves(const ServerReport *report)
{
	return report->verdict == ASK_SERVING && report->mode != SERVER_READ_ONLY;
}

/* Servers of the list, not their addresses; each of them once. */
static int
count_mode(const Check *check, ServerMode mode)
{
	int			count = 0;

	for (int i = 0; i < check->list.nservers; i++)
	{
		const ServerReport *report = best_report(check, i);

		count += report != NULL && report->verdict == ASK_SERVING &&
			report->mode == mode && !is_counted(check, i);
	}
	return count;
}

/* Is this server ahead in the list under another name? */
static bool
is_counted(const Check *check, int server)
{
	const char *address = best_report(check, server)->address;

	for (int i = 0; i < server; i++)
	{
		const ServerReport *report = best_report(check, i);

		if (report != NULL && report->verdict == ASK_SERVING &&
			strcmp(report->address, address) == 0)
			return true;
	}
	return false;
}

/* Does one of them say so? */
static bool
has_no_quorum(const Check *check)
{
	for (int i = 0; i < check->probe.nreports; i++)
		if (check->probe.reports[i].verdict == ASK_IDLE ||
			(check->probe.reports[i].verdict == ASK_SERVING &&
			 check->probe.reports[i].mode == SERVER_READ_ONLY))
			return true;
	return false;
}

/* Or is it a name, which is to be looked up? */
static bool
is_address(const char *host)
{
	struct in6_addr address;

	return inet_pton(AF_INET, host, &address) == 1 ||
		inet_pton(AF_INET6, host, &address) == 1;
}

/* ZOOKEEPER-4537. */
static bool
has_known_bugs(const char *release)
{
	return strncmp(release, "3.6.", 4) == 0 || strcmp(release, "3.7.0") == 0 ||
		strcmp(release, "3.8.0") == 0;
}
