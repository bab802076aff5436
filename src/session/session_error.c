/*-------------------------------------------------------------------------
 *
 * session_error.c
 *	  Texts of errors of ZooKeeper and of connections, and SQLSTATEs of
 *	  losses.  Those of results are in answer.c.
 *
 *-------------------------------------------------------------------------
 */
#include "session_private.h"

#include "miscadmin.h"

#include "answer.h"
#include "stat.h"
#include "text.h"

/* What is raised for a loss before there is a session. */
typedef struct StartError
{
	int			sqlstate;
	const char *message;
	const char *hint;
} StartError;

/* For a loss that is not here, and for none: "could not connect". */
static const StartError start_errors[] = {
	[ZK_LOSS_RESOLVE] = {
		ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION,
		"could not resolve the ZooKeeper servers",
		"Correct the names in the setting \"zklock.servers\", or the DNS. zk_check() names each server that has no address."
	},
	[ZK_LOSS_AUTH] = {
		ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION,
		"ZooKeeper refused the credentials",
		"Check the setting \"zklock.auth\": its scheme must be enabled in the ensemble."
	},
	[ZK_LOSS_RESOURCES] = {
		ERRCODE_INSUFFICIENT_RESOURCES,
		"could not start a ZooKeeper session",
		"If the program is missing or cannot be executed, install zklock again. Otherwise raise the limits of processes, file descriptors and memory (docs/sizing.md, Processes). zk_check() tries the program."
	},
	[ZK_LOSS_PROTOCOL] = {
		ERRCODE_PROTOCOL_VIOLATION,
		"the server does not answer like ZooKeeper",
		"Correct the ports in the setting \"zklock.servers\": another service is listening there. zk_check() quotes what it says."
	},
	[ZK_LOSS_TLS] = {
		ERRCODE_CONFIG_FILE_ERROR,
		"could not set up TLS for ZooKeeper",
		"Check the settings \"zklock.ssl_...\", and the files that they name. zk_check() tries them."
	},
	[ZK_LOSS_PROGRAM] = {
		ERRCODE_CONNECTION_FAILURE,
		"could not start a ZooKeeper session",
		"Try again. zk_check() looks at the program and at each server."
	},
	[ZK_LOSS_DEMAND] = {
		ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION,
		"ZooKeeper demands another kind of authentication",
		"zklock does not speak SASL. Let the servers accept another scheme, by their settings \"enforce.auth.schemes\" and \"sessionRequireClientSASLAuth\": \"digest\", which each session of zklock presents, or \"x509\" over TLS with a client certificate."
	},
};

/*
 * What to do about the last words of a session's program, by what stands in
 * them.  The first one that fits counts: those behind it are less certain.
 */
static const struct
{
	const char *words;
	const char *hint;
}			connection_hints[] = {
	{
		"\"zklock.ssl_cert_file\" has expired",
		"Renew that certificate, or set the clock of this machine if it is wrong. zk_check() looks at each server."
	},
	{
		"certificate has expired",
		"Renew the certificate that the DETAIL describes, or set the clock of this machine if it is wrong. zk_check() looks at each server."
	},
	{
		"it has no subjectAltName",
		"Issue the server a certificate that has its name or address, as it stands in \"zklock.servers\", as subjectAltName: its CN is not looked at. zk_check() looks at each server."
	},
	{
		"The certificate of server",
		"The setting \"zklock.ssl_ca_file\" must name a file with the authority that has signed the servers' certificates, and these must be in date and have the names that stand in \"zklock.servers\". If \"zklock.ssl_crl_file\" is set, it must have a list in date of each authority. zk_check() looks at each server."
	},
	{
		" alert ",
		"The server may want a client certificate, of an authority that it knows: check the settings \"zklock.ssl_cert_file\" and \"zklock.ssl_key_file\", and see the server's log. zk_check() looks at each server."
	},
	{
		"right after the TLS handshake",
		"The server may want a client certificate, of an authority that it knows: check the settings \"zklock.ssl_cert_file\" and \"zklock.ssl_key_file\", and see the server's log. zk_check() looks at each server."
	},
	{
		"closed the connection in the TLS handshake",
		"Check that the setting \"zklock.servers\" names the ports where ZooKeeper speaks TLS, its secureClientPort, and that the servers' maxClientCnxns is not reached. zk_check() looks at each server."
	},
	{
		"in the TLS handshake",
		"Check that the setting \"zklock.servers\" names the ports where ZooKeeper speaks TLS, its secureClientPort. zk_check() looks at each server."
	},
	{
		"TLS with server",
		"Check that the setting \"zklock.servers\" names the ports where ZooKeeper speaks TLS, its secureClientPort. zk_check() looks at each server."
	},
	{
		"is still being looked up",
		"Look into the DNS of this machine, or name the servers by their addresses in the setting \"zklock.servers\"; see \"zklock.connect_timeout\". zk_check() looks at each server."
	},
	{
		"has not executed a request",
		"Run the statement again later. A server that has too many requests executes only some of them: see its settings \"throttled_op_wait_time\" and \"request_throttle_max_requests\". zk_check() looks at each server."
	},
	{
		"Connection refused",
		"Check that ZooKeeper is running and that the setting \"zklock.servers\" names its client port. zk_check() looks at each server."
	},
	{
		"closed the connection",
		"Check that the ensemble has a quorum, and its maxClientCnxns (by default 60 connections from one address; zklock uses one for each backend). It may also want TLS (setting \"zklock.ssl\"). zk_check() looks at each server."
	},
	{
		"",						/* whatever they are, also none */
		"Check that the servers in the setting \"zklock.servers\" can be reached, and see \"zklock.connect_timeout\". zk_check() looks at each server."
	}
};

static int	sqlstate_of(ZkResult result);
pg_noreturn static void raise_denied(const char *doing, const char *znode,
									 const char *code);
pg_noreturn static void raise_session_lost(const char *doing);
static const char *current_error(void);
static const char *silence_text(void);
static const char *current_server(void);
static int	connection_hint(const char *error);

void
zklock_session_raise(const ZkReply *reply, const char *doing,
					 const char *path)
{
	const char *code = reply->code_text;
	char	   *znode = zklock_text_quotable(path);
	const char *problem = "request to ZooKeeper failed";
	const char *hint = "Run the statement again. If it fails again, run zk_check() to find what is wrong with the ensemble.";

	CHECK_FOR_INTERRUPTS();
	switch (reply->result)
	{
		case ZK_SESSION_LOST:
			raise_session_lost(doing);
		case ZK_NO_AUTH:
			if (zklock_session_has_credentials() && strcmp(code, "invalid acl") == 0)
				ereport(ERROR,
						(errcode(sqlstate_of(ZK_NO_AUTH)),
						 errmsg("could not %s: ZooKeeper knows no credentials of this session",
								doing),
						 errdetail("ZooKeeper said of znode \"%s\": %s.", znode,
								   code),
						 errhint("If the setting \"%s\" is \"%s\", let the servers ask for a client certificate (ssl.clientAuth=need). Otherwise enable its scheme in the ensemble.",
								 "zklock.auth", PROTOCOL_CERTIFICATE)));
			raise_denied(doing, znode, code);
		case ZK_NO_MEMORY:
			zklock_session_raise_memory();
		case ZK_UNKNOWN_OUTCOME:
			problem = "the connection to ZooKeeper was lost";
			break;
		case ZK_QUOTA_EXCEEDED:
			problem = "a quota of ZooKeeper is exceeded";
			hint = "Find the quota with \"listquota\" in zkCli.sh, for this znode and those above it, and raise it with \"setquota\".";
			break;
		case ZK_NOT_EXECUTED:
			problem = "ZooKeeper has not executed the request";
			hint = "Run the statement again later. A server that has too many requests executes only some of them: see its settings \"throttled_op_wait_time\" and \"request_throttle_max_requests\". A server without a quorum executes no writes. zk_check() looks at each server.";
			break;
		case ZK_LOCAL_SESSION:
			problem = "ZooKeeper allows this session no ephemeral znodes";
			hint = "Set \"localSessionsUpgradingEnabled\" to \"true\" on all servers, or \"localSessionsEnabled\" to \"false\". The session is local to one server, and a lock needs a global session.";
			break;
		case ZK_BAD_ARGUMENTS:
			problem = "ZooKeeper refused the path";
			hint = "Choose another name.";
			break;
		default:
			break;
	}
	ereport(ERROR,
			(zklock_stat_errcode(sqlstate_of(reply->result)),
			 errmsg("could not %s: %s", doing, problem),
			 errdetail("ZooKeeper said of znode \"%s\": %s.", znode, code),
			 errhint("%s", hint)));
	pg_unreachable();
}

/* As the table of answers has it. */
static int
sqlstate_of(ZkResult result)
{
	const char *state = answer_sqlstate(result);

	return MAKE_SQLSTATE(state[0], state[1], state[2], state[3], state[4]);
}

void
zklock_session_raise_memory(void)
{
	ereport(ERROR,
			(errcode(sqlstate_of(ZK_NO_MEMORY)),
			 errmsg("out of memory"),
			 errdetail("Failed on a request to ZooKeeper.")));
}

/*
 * The reply can be there ahead of the loss.  Then the loss is noted with what is
 * known now, and again when it comes.
 */
static void
raise_session_lost(const char *doing)
{
	zklock_session_poll();
	if (MySession.client != NULL)
	{
		if (!session_is_granted() && session_is_over())
			session_raise_over();
		session_loss_note();
	}
	ereport(ERROR,
			(zklock_stat_errcode(sqlstate_of(ZK_SESSION_LOST)),
			 errmsg("could not %s: the ZooKeeper session was lost", doing),
			 errdetail("%s", session_loss_text()),
			 errhint("Run the statement again: it uses a new session. Run zk_check() to find what is wrong with the ensemble.")));
}

void
session_raise_over(void)
{
	ZkClientLoss loss = zklock_session_status()->loss;
	StartError	start = {
		ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION,
		"could not connect to ZooKeeper",
		"Try again. If that fails, run zk_check() to find what is wrong with the ensemble."
	};

	Assert(session_is_over());
	session_give_up();
	if (loss < lengthof(start_errors) && start_errors[loss].message != NULL)
		start = start_errors[loss];
	ereport(ERROR,
			(zklock_stat_errcode(start.sqlstate),
			 errmsg("%s", start.message),
			 loss != ZK_LOSS_AUTH ?
			 errdetail("%s.", zklock_client_last_error(MySession.client)) : 0,
			 errhint("%s", start.hint)));
}

void
session_raise_not_connected(void)
{
	const char *error = zklock_client_last_error(MySession.client);

	session_give_up();
	ereport(ERROR,
			(zklock_stat_errcode(ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION),
			 errmsg("could not connect to ZooKeeper within %d ms",
					session_settings.connect_timeout),
			 error[0] != '\0' ? errdetail("%s.", error) :
			 errdetail("No server of \"%s\" has answered.",
					   zklock_session_servers()),
			 connection_hint(error)));
}

/* The session stays: it may be connected by the next try. */
void
zklock_session_raise_silence(const char *name)
{
	const char *error = current_error();
	const char *why = silence_text();
	const char *what = " It is not known whether the request was executed.";

	if (error[0] != '\0')
		why = psprintf("%s.", error);
	if (name != NULL)
		what = " It is not known whether another contender holds the lock.";
	ereport(ERROR,
			(zklock_stat_errcode(ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION),
			 name != NULL ?
			 errmsg("could not ask ZooKeeper for lock \"%s\" in the time given",
					name) :
			 errmsg("ZooKeeper has not answered in the time given"),
			 errdetail("%s%s", why, what),
			 connection_hint(error)));
}

/*
 * What has been said of a session that is not connected yet, or of requests that
 * are put off; else "".
 */
static const char *
current_error(void)
{
	if (MySession.client == NULL ||
		(session_is_granted() && zklock_session_status()->nput_off == 0))
		return "";
	return zklock_client_last_error(MySession.client);
}

int
zklock_session_explain_silence(void)
{
	bool		is_connected = zklock_session_is_connected();
	const char *error = "";

	if (is_connected && zklock_session_status()->nput_off == 0)
		return errdetail("%s", silence_text());
	if (MySession.client != NULL)
		error = zklock_client_last_error(MySession.client);
	if (is_connected)
		errdetail("%s.", error);
	else if (error[0] != '\0')
		errdetail("%s %s.", silence_text(), error);
	else
		errdetail("%s", silence_text());
	return connection_hint(error);
}

/* By the backend's clock: a pause of its processes takes as long as a slow answer. */
int
zklock_session_explain_late_proof(int64 took_ms)
{
	errdetail("The last answer of ZooKeeper reached this commit after " INT64_FORMAT " ms. A commit can rely on answers within %d ms if this machine does not pause its processes.",
			  took_ms, contact_answer_ms(zklock_session_timeout_ms()));
	return errhint("Run zk_check() to find out whether the ensemble is slow, and look for pauses of this machine. Otherwise increase \"%s\", and the term of leases if the transaction requires any. Then run the transaction again.",
				   "zklock.session_timeout");
}

/* Why there has been no answer. */
static const char *
silence_text(void)
{
	if (!session_is_granted())
		return _("There was no connection to ZooKeeper.");
	if (!zklock_session_is_connected())
		return _("The connection to ZooKeeper is down.");
	return _("ZooKeeper has not answered.");
}

/*
 * Raise 42501.  Whether a znode may be made or deleted depends on the ACL of
 * its parent.
 */
static void
raise_denied(const char *doing, const char *znode, const char *code)
{
	if (zklock_session_has_credentials())
		ereport(ERROR,
				(errcode(sqlstate_of(ZK_NO_AUTH)),
				 errmsg("could not %s: ZooKeeper denied access", doing),
				 errdetail("ZooKeeper said of znode \"%s\": %s. Its ACL, or that of the znode above it, does not give this right to the credentials of this session, which are those of \"%s\".",
						   znode, code, "zklock.auth"),
				 errhint("Compare the ACLs of both znodes with \"getAcl\" in zkCli.sh. They were made with other credentials; all clients of a lock must use the same ones.")));
	ereport(ERROR,
			(errcode(sqlstate_of(ZK_NO_AUTH)),
			 errmsg("could not %s: ZooKeeper denied access", doing),
			 errdetail("ZooKeeper said of znode \"%s\": %s. Its ACL, or that of the znode above it, does not give this right to everybody, and this session has no credentials.",
					   znode, code),
			 errhint("Set \"%s\" to credentials that the ACL names. \"getAcl\" in zkCli.sh shows the ACL.",
					 "zklock.auth")));
}

void
zklock_session_raise_difference(const char *path, const char *how)
{
	CHECK_FOR_INTERRUPTS();
	ereport(ERROR,
			(errcode(ERRCODE_SYSTEM_ERROR),
			 errmsg("ZooKeeper server \"%s\" differs from its leader",
					current_server()),
			 errdetail("Znode \"%s\": %s.", zklock_text_quotable(path), how),
			 errhint("Stop that server, delete its data (the directories \"version-2\"), and start it: it copies the data of the leader.")));
}

void
zklock_session_raise_no_containers(const char *path, const char *how)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("ZooKeeper server \"%s\" has no container znodes",
					current_server()),
			 errdetail("It was asked several times to create container znode \"%s\", and %s.",
					   zklock_text_quotable(path), how),
			 errhint("Use servers of Apache ZooKeeper: docs/interop.md, Other servers.")));
}

void
zklock_session_warn_illegal(const char *machine, const char *from,
							const char *to)
{
	Assert(false);
	if (in_error_recursion_trouble())
		return;
	HOLD_INTERRUPTS();
	ereport(WARNING,
			(errcode(ERRCODE_INTERNAL_ERROR),
			 errmsg("illegal state of %s: \"%s\" after \"%s\"", machine, to,
					from),
			 errdetail("This is a fault of zklock. A lock whose state is in doubt counts as lost."),
			 errhint("Report it, and run the transaction again in a new connection.")));
	RESUME_INTERRUPTS();
}

/* The address of the server that has answered last, "" without a session. */
static const char *
current_server(void)
{
	const ZkClientStatus *status = zklock_session_status();

	return status != NULL ? zklock_text_printable(status->server) : "";
}

/* Inside ereport(): the errhint() for the program's last words, or for none. */
static int
connection_hint(const char *error)
{
	int			row = 0;

	while (strstr(error, connection_hints[row].words) == NULL)
		row++;
	return errhint("%s", connection_hints[row].hint);
}
