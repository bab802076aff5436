/*-------------------------------------------------------------------------
 *
 * loss.c
 *	  The ways in which a lock or a lease can be lost, and their words.
 *
 * The module that finds a loss says which kind it is, and how it is reported:
 * as an error of the transaction that relied on the lock, as a warning at the
 * release, or as a line in the log.  The words are here alone.
 *
 *-------------------------------------------------------------------------
 */
#include "loss.h"

#include "miscadmin.h"

#include "name.h"
#include "session.h"
#include "stat.h"
#include "text.h"

/*
 * Of a queue node that somebody deleted: what is always true, with its token,
 * for the DETAIL, and where to look, for the HINT.
 */
#define DELETED \
	"The queue node with fencing token " INT64_FORMAT " was deleted by zk_evict(), or by another client of ZooKeeper."
#define SEE_DELETED \
	"Search for this token in the log of the cluster where zk_evict() was called: it says who called it."

static void describe_held(const ZkLossOf *of, ZkLoss *loss);
static void describe_leased(const ZkLossOf *of, ZkLoss *loss);
static const char *hint_of_held(const ZkLossOf *of);

void
zklock_loss_describe(const ZkLossOf *of, ZkLoss *loss)
{
	switch (of->kind)
	{
		case ZK_LOST_NOT:
			Assert(false);
			pg_fallthrough;
		case ZK_LOST_SESSION:
		case ZK_LOST_DELETED:
		case ZK_LOST_MISLED:
		case ZK_LOST_IN_DOUBT:
			describe_held(of, loss);
			break;
		case ZK_LOST_LEASE:
			describe_leased(of, loss);
			break;
	}
}

static void
describe_held(const ZkLossOf *of, ZkLoss *loss)
{
	snprintf(loss->message, sizeof(loss->message), _("lock \"%s\" was lost"),
			 of->name);
	if (of->kind == ZK_LOST_DELETED)
		snprintf(loss->detail, sizeof(loss->detail), _(DELETED), of->token);
	else if (of->kind == ZK_LOST_MISLED)
		strlcpy(loss->detail,
				_("It had been granted because of a message of another ZooKeeper client, while another contender ahead in the queue held it."),
				sizeof(loss->detail));
	else if (of->kind == ZK_LOST_IN_DOUBT)
		strlcpy(loss->detail, _("Its state is in doubt, by a fault of zklock."),
				sizeof(loss->detail));
	else
		zklock_session_describe_loss(loss->detail, sizeof(loss->detail));
	loss->hint = hint_of_held(of);
}

static void
describe_leased(const ZkLossOf *of, ZkLoss *loss)
{
	snprintf(loss->message, sizeof(loss->message),
			 _("the lease of lock \"%s\" with fencing token " INT64_FORMAT " is not held"),
			 of->name, of->token);
	strlcpy(loss->detail,
			_("It was given up, evicted, or not renewed within its term, or ZooKeeper does not answer."),
			sizeof(loss->detail));
	loss->hint = _("Take the lease again with zk_try_lease(), and run the transaction again with its token.");
}

/*
 * What to do about the loss of a lock that is held, in the words of the
 * functions by which it was taken.
 */
static const char *
hint_of_held(const ZkLossOf *of)
{
	bool		is_deleted = of->kind == ZK_LOST_DELETED;

	if (!of->is_of_session)
	{
		if (is_deleted)
			return _("Run the transaction again. " SEE_DELETED);
		return _("Run the transaction again.");
	}
	if (zklock_name_is_advisory(of->name))
	{
		if (is_deleted)
			return _("Release it with pg_advisory_unlock() or pg_advisory_unlock_all() and run the transaction again. " SEE_DELETED);
		return _("Release it with pg_advisory_unlock() or pg_advisory_unlock_all() and run the transaction again.");
	}
	if (is_deleted)
		return _("Release it with zk_unlock() or zk_unlock_all() and run the transaction again. " SEE_DELETED);
	return _("Release it with zk_unlock() or zk_unlock_all() and run the transaction again.");
}

void
zklock_loss_raise(const ZkLoss *loss)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg_internal("%s", loss->message),
			 errdetail_internal("%s", loss->detail),
			 errhint("%s", loss->hint)));
}

void
zklock_loss_raise_of(const ZkLossOf *of)
{
	ZkLoss		loss;

	zklock_loss_describe(of, &loss);
	zklock_loss_raise(&loss);
}

void
zklock_loss_warn(const ZkLossOf *of)
{
	Assert(of->kind != ZK_LOST_NOT);
	if (of->kind == ZK_LOST_DELETED)
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 errmsg("lock \"%s\" had been lost before it was released",
						of->name),
				 errdetail(DELETED, of->token),
				 errhint(SEE_DELETED)));
	else
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 errmsg("lock \"%s\" had been lost before it was released",
						of->name)));
}

/*
 * Each is taken before it is told: what an interrupt ends in between has an
 * error of its own, and the log has the loss once.
 */
bool
zklock_loss_tell_gone(int64 token)
{
	ZkClient   *client = zklock_session_client();
	ZkRequest  *request;
	bool		is_found = false;

	zklock_session_attend();
	while (client != NULL &&
		   (request = zklock_client_take_gone(client)) != NULL)
	{
		const ZkReply *gone = zklock_client_reply(request);
		ZkLossOf	of = {.kind = ZK_LOST_DELETED,.token = gone->czxid};
		char	   *node = NULL;

		if (gone->result == ZK_OK)	/* there was memory for it */
		{
			of.name = pstrdup(gone->children[0]);
			node = pstrdup(strrchr(gone->path, '/') + 1);
		}
		zklock_client_free(request);
		if (node == NULL)
			continue;
		is_found |= token == 0 || of.token == token;
		zklock_loss_log_deletion(of.name, node, of.token);
		zklock_loss_warn(&of);
	}
	return is_found;
}

void
zklock_loss_log_deletion(const char *name, const char *node, int64 token)
{
	zklock_stat_count(ZK_STAT_DELETION);
	ereport(LOG,
			(errmsg("queue node of process %d for ZooKeeper lock \"%s\" was deleted",
					MyProcPid, zklock_text_quotable_own(name)),
			 errdetail_log(DELETED " Its name was \"%s\".", token,
						   zklock_text_quotable(node)),
			 errhint(SEE_DELETED)));
}

void
zklock_loss_raise_waiter(const char *name, const char *node, int64 token)
{
	ereport(ERROR,
			(errcode(ERRCODE_OPERATOR_INTERVENTION),
			 errmsg("queue node for lock \"%s\" was deleted", name),
			 errdetail(DELETED, token),
			 errdetail_log(DELETED " Its name was \"%s\".", token,
						   zklock_text_quotable(node)),
			 errhint("Run the statement again to join the queue again. " SEE_DELETED)));
}
