/*-------------------------------------------------------------------------
 *
 * errors.c
 *	  What ZooKeeper, or the lack of it, has against a request, as PostgreSQL's
 *	  errors: the one table from our terms (terms.h) to SQLSTATEs and words.
 *
 * Knows no session: it is told what there is to say.
 *
 *-------------------------------------------------------------------------
 */
#include "errors.h"

#include "nodedata.h"

pg_noreturn static void raise_denied(const char *doing, const char *znode,
									 const char *code, bool has_credentials);
static const char *connection_hint(const char *error);

void
zklock_errors_raise(const ZkReply *reply, const char *doing, const char *path,
					const char *loss, bool has_credentials)
{
	const char *code = reply->code_text;
	char	   *znode = zklock_nodedata_quotable(path);

	switch (reply->result)
	{
		case ZK_SESSION_LOST:
			ereport(ERROR,
					(errcode(ERRCODE_CONNECTION_FAILURE),
					 errmsg("could not %s: the ZooKeeper session was lost", doing),
					 errdetail("%s", loss),
					 errhint("Run the statement again; it will use a new session.")));
			break;
		case ZK_UNKNOWN_OUTCOME:
			ereport(ERROR,
					(errcode(ERRCODE_CONNECTION_FAILURE),
					 errmsg("could not %s: the connection to ZooKeeper was lost", doing),
					 errdetail("ZooKeeper said of znode \"%s\": %s.", znode,
							   code)));
			break;
		case ZK_NO_AUTH:
			raise_denied(doing, znode, code, has_credentials);
		case ZK_QUOTA_EXCEEDED:
			ereport(ERROR,
					(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
					 errmsg("could not %s: a quota of ZooKeeper is exceeded", doing),
					 errdetail("It is about znode \"%s\".", znode),
					 errhint("See what \"listquota\" in ZooKeeper's shell says of the znodes above it.")));
			break;
		case ZK_NO_MEMORY:
			zklock_errors_raise_memory();
			break;
		case ZK_BAD_ARGUMENTS:
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("could not %s: ZooKeeper refused the path", doing),
					 errdetail("ZooKeeper said of znode \"%s\": %s.", znode,
							   code)));
			break;
		default:
			ereport(ERROR,
					(errcode(ERRCODE_SYSTEM_ERROR),
					 errmsg("could not %s: request to ZooKeeper failed", doing),
					 errdetail("ZooKeeper said of znode \"%s\": %s.", znode,
							   code)));
	}
	pg_unreachable();
}

void
zklock_errors_raise_memory(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_OUT_OF_MEMORY),
			 errmsg("out of memory"),
			 errdetail("Failed on a request to ZooKeeper.")));
}

void
zklock_errors_raise_no_session(ZkClientLoss loss, const char *error)
{
	switch (loss)
	{
		case ZK_LOSS_RESOLVE:
			ereport(ERROR,
					(errcode(ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION),
					 errmsg("could not resolve the ZooKeeper servers"),
					 errdetail("%s.", error),
					 errhint("Check the setting \"%s\".", "zklock.servers")));
			break;
		case ZK_LOSS_AUTH:
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION),
					 errmsg("ZooKeeper refused the credentials"),
					 errhint("Check the setting \"%s\": its scheme must be enabled in the ensemble.",
							 "zklock.auth")));
			break;
		case ZK_LOSS_RESOURCES:
			ereport(ERROR,
					(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
					 errmsg("could not start a ZooKeeper session"),
					 errdetail("%s.", error),
					 errhint("A session needs a process, three file descriptors and memory.")));
			break;
		case ZK_LOSS_PROTOCOL:
			ereport(ERROR,
					(errcode(ERRCODE_PROTOCOL_VIOLATION),
					 errmsg("the server does not answer like ZooKeeper"),
					 errdetail("%s.", error),
					 errhint("Check the ports in the setting \"%s\".",
							 "zklock.servers")));
			break;
		case ZK_LOSS_PROGRAM:
			ereport(ERROR,
					(errcode(ERRCODE_CONNECTION_FAILURE),
					 errmsg("could not start a ZooKeeper session"),
					 errdetail("%s.", error)));
			break;
		case ZK_LOSS_NONE:
		case ZK_LOSS_EXPIRED:
		case ZK_LOSS_SILENCE:
		case ZK_LOSS_STANDSTILL:
		case ZK_LOSS_UNANSWERED:
			ereport(ERROR,
					(errcode(ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION),
					 errmsg("could not connect to ZooKeeper"),
					 errdetail("%s.", error)));
	}
	pg_unreachable();
}

void
zklock_errors_raise_not_connected(int bound_ms, const char *servers,
								  const char *error)
{
	ereport(ERROR,
			(errcode(ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION),
			 errmsg("could not connect to ZooKeeper within %d ms",
					bound_ms),
			 error[0] != '\0' ? errdetail("%s.", error) :
			 errdetail("No server of \"%s\" has answered.", servers),
			 errhint("%s", connection_hint(error))));
}

void
zklock_errors_raise_silence(const char *name, const char *error,
							const char *why)
{
	ereport(ERROR,
			(errcode(ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION),
			 errmsg("could not ask ZooKeeper for lock \"%s\" in the time given",
					name),
			 error[0] != '\0' ?
			 errdetail("%s. Whether somebody holds it is not known.", error) :
			 errdetail("%s Whether somebody holds it is not known.", why),
			 errhint("%s", connection_hint(error))));
}

void
zklock_errors_describe_loss(const ZkClientStatus *status, const char *error,
							char *text, size_t size)
{
	switch (status->loss)
	{
		case ZK_LOSS_SILENCE:
			snprintf(text, size,
					 "No contact with ZooKeeper for the session timeout of %d ms.",
					 status->session_timeout_ms);
			break;
		case ZK_LOSS_AUTH:
			snprintf(text, size,
					 "ZooKeeper refused the credentials after a reconnect.");
			break;
		case ZK_LOSS_PROTOCOL:
			snprintf(text, size,
					 "What answered after a reconnect is not a usable ZooKeeper server: %s.",
					 error);
			break;
		case ZK_LOSS_PROGRAM:
			snprintf(text, size, "%s.", error);
			break;
		case ZK_LOSS_STANDSTILL:
			snprintf(text, size,
					 "This backend stood still for the session timeout of %d ms.",
					 status->session_timeout_ms);
			break;
		case ZK_LOSS_UNANSWERED:
			snprintf(text, size,
					 "ZooKeeper kept the session, and answered none of its requests for the session timeout of %d ms.",
					 status->session_timeout_ms);
			break;
		case ZK_LOSS_NONE:
		case ZK_LOSS_EXPIRED:
		case ZK_LOSS_RESOLVE:
		case ZK_LOSS_RESOURCES:
			snprintf(text, size,
					 "ZooKeeper ended session 0x%llx.",
					 (unsigned long long) status->session_id);
			break;
	}
}

/*
 * Of a znode that is to be made or deleted the ACL of the one above it
 * decides.
 */
static void
raise_denied(const char *doing, const char *znode, const char *code,
			 bool has_credentials)
{
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("could not %s: ZooKeeper denied access", doing),
			 has_credentials ?
			 errdetail("ZooKeeper said of znode \"%s\": %s. Its ACL, or that of the znode above it, does not give this right to the credentials of this session, those of \"%s\".",
					   znode, code, "zklock.auth") :
			 errdetail("ZooKeeper said of znode \"%s\": %s. Its ACL, or that of the znode above it, does not give this right to everybody, and this session has no credentials.",
					   znode, code),
			 has_credentials ?
			 errhint("See what \"getAcl\" in ZooKeeper's shell says of both. All clients of a lock need the same credentials; who has others has made these znodes.") :
			 errhint("Set \"%s\" to credentials that the ACL names; \"getAcl\" in ZooKeeper's shell shows it.",
					 "zklock.auth")));
}

/* What to do about the library's last words. */
static const char *
connection_hint(const char *error)
{
	if (strstr(error, "Connection refused") != NULL)
		return "Check that ZooKeeper is running and that the setting \"zklock.servers\" names its client port.";
	if (strstr(error, "failed while receiving a server response") != NULL ||
		strstr(error, "refused to accept the client") != NULL ||
		strstr(error, "Connection reset") != NULL)
		return "The server closed the connection during the handshake: check that the ensemble has a quorum, and its maxClientCnxns (by default 60 connections from one address; zklock uses one for each backend).";
	return "Check that the servers in the setting \"zklock.servers\" can be reached, and see \"zklock.connect_timeout\".";
}
