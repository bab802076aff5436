/*-------------------------------------------------------------------------
 *
 * dialog.c
 *	  Questions to the ensemble that are asked one by one and awaited.
 *
 * Requests are malloc'ed memory of client.c, which no memory context frees.
 * So zklock_dialog_run() has the one PG_TRY.  A request that is freed before
 * its answer goes on: what it asks for may still be done.
 *
 *-------------------------------------------------------------------------
 */
#include "dialog.h"

#include "storage/proc.h"

#include "lock.h"

void
zklock_dialog_run(bool (*talk) (ZkDialog *dialog, void *argument),
				  void *argument)
{
	ZkDialog	dialog = {0};
	volatile bool is_over = false;

	dialog.deadline = LockTimeout > 0 ?
		zklock_client_now() + LockTimeout : ZK_NO_DEADLINE;
	for (volatile bool is_retry = false; !is_over;
		 is_retry = zklock_session_is_turning())
	{
		zklock_session_reap();
		if (!zklock_has_locks())
			zklock_session_adopt_settings();
		zklock_session_open(is_retry);
		PG_TRY();
		{
			is_over = talk(&dialog, argument);
		}
		PG_CATCH();
		{
			zklock_dialog_end(&dialog);
			PG_RE_THROW();
		}
		PG_END_TRY();
		zklock_dialog_end(&dialog);
	}
}

const ZkReply *
zklock_dialog_ask(ZkDialog *dialog, ZkRequest *request)
{
	const ZkReply *reply;

	zklock_client_free(dialog->request);
	dialog->request = request;
	reply = zklock_session_await(request, dialog->deadline,
								 ZK_WAITING_FOR_REPLY);
	if (reply == NULL)
		zklock_dialog_raise_timeout(false);
	return reply;
}

void
zklock_dialog_send_ahead(ZkDialog *dialog, ZkRequest *request)
{
	zklock_client_free(dialog->ahead);
	dialog->ahead = request;
}

const ZkReply *
zklock_dialog_reply_ahead(ZkDialog *dialog)
{
	return dialog->ahead != NULL ? zklock_client_reply(dialog->ahead) : NULL;
}

/*
 * A delete whose reply was lost is sent again only if the very same znode is
 * still there: at a path that can be used again, as that of a record of
 * zk_run_once(), a later one is somebody else's.  The check, whatever comes of
 * it, is for a server that lags behind, or leads no more and does not know: a write
 * is not answered by that one, and a read behind it is not older.
 */
bool
zklock_dialog_remove(ZkDialog *dialog, ZkRemoval *removal)
{
	for (;;)
	{
		ZkClient   *client = zklock_session_client();
		const ZkReply *reply;
		bool		was_tried = removal->is_tried;

		reply = zklock_dialog_ask(dialog,
								  zklock_client_check(client, removal->path, 0));
		if (reply->result == ZK_OK || reply->result == ZK_NO_NODE)
			reply = zklock_dialog_ask(dialog,
									  zklock_client_get(client, removal->path));
		if (reply->result == ZK_SESSION_LOST)
			return false;
		if (reply->result == ZK_UNKNOWN_OUTCOME)
			continue;
		if (reply->result != ZK_OK && reply->result != ZK_NO_NODE)
			zklock_session_raise(reply, removal->doing, removal->path);
		if (reply->result == ZK_OK && removal->czxid == 0)
			removal->czxid = reply->czxid;
		if (reply->result == ZK_OK && reply->czxid == removal->czxid)
		{
			removal->is_tried = true;
			reply = zklock_dialog_ask(dialog,
									  zklock_client_remove(client, removal->path,
															   ZK_ANY_VERSION));
			if (reply->result == ZK_SESSION_LOST)
				return false;
			if (reply->result == ZK_UNKNOWN_OUTCOME)
				continue;
			if (reply->result != ZK_OK && reply->result != ZK_NO_NODE)
				zklock_session_raise(reply, removal->doing, removal->path);
			removal->is_removed = reply->result == ZK_OK || was_tried;
			return true;
		}
		removal->is_removed = was_tried;
		return true;
	}
}

void
zklock_dialog_end(ZkDialog *dialog)
{
	zklock_client_free(dialog->ahead);
	dialog->ahead = NULL;
	zklock_client_free(dialog->request);
	dialog->request = NULL;
}

void
zklock_dialog_raise_timeout(bool is_answered)
{
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg("canceling statement due to lock timeout"),
			 is_answered ? 0 : zklock_session_errdetail_silence()));
}
