/*-------------------------------------------------------------------------
 *
 * program_command.c
 *	  Takes the backend's frames, and does what they ask for.
 *
 *-------------------------------------------------------------------------
 */
#include "program_request.h"

#include <string.h>

static bool take_request(Session *session, const FrameTaken *taken);
static void take_content(Request *request, const FrameTaken *taken);
static char *copy_blob(const FrameTaken *taken, int blob);

bool
command_take(Session *session, const FrameTaken *taken)
{
	Request    *request;

	switch (taken->frame.kind)
	{
		case FRAME_REQUEST:
			return take_request(session, taken);
		case FRAME_FREE:
			/* the backend is done with a request that is kept for it */
			step_let_go(request_find(session, taken->frame.id));
			return true;
		case FRAME_WITHDRAW:
			request = request_find(session, taken->frame.id);
			if (request == NULL || !step_withdraw(request))
				request_tell_undone(session);
			return true;
		case FRAME_UNWATCH:
			if (session->wait.path != NULL &&
				session->wait.id == taken->frame.id)
				wait_end(session);
			return true;
		case FRAME_KEEP:
			keep_take(session, taken);
			return true;
	}
	return false;
}

static bool
take_request(Session *session, const FrameTaken *taken)
{
	const FrameRequest *wanted = &taken->frame.u.request;
	int			npaths = frame_count_texts(taken, 2);
	Request    *request;

	if (wanted->kind == REQUEST_DELETE_GUARDED &&
		(npaths < 1 || npaths > ZK_REMOVE_MAX))
		return false;
	request = request_new(session, taken->frame.id,
						  (RequestKind) wanted->kind, taken->blobs[0]);
	request->is_repeated = taken->frame.id == 0;
	if (wanted->is_awaited)
		request->owed |= OWED_UNDONE;
	take_content(request, taken);
	if (wanted->is_watched)
	{
		request->watch = WATCH_DATA;
		if (request->step == REQUEST_LIST)
			request->watch = WATCH_CHILDREN;
		wait_begin(session, request);
	}
	step_submit(request);
	return true;
}

/* What requests of its kind have besides. */
static void
take_content(Request *request, const FrameTaken *taken)
{
	const FrameRequest *wanted = &taken->frame.u.request;
	Several    *several = &request->several;
	char	   *other_path = copy_blob(taken, 1);
	char	   *data = copy_blob(taken, 2);
	int			length = (int) taken->frame.blob_lengths[2];

	request->node_kind = wanted->node_kind;
	switch (request->step)
	{
		case REQUEST_CHECK:
			request->check.czxid = wanted->czxid;
			break;
		case REQUEST_SET:
		case REQUEST_DELETE:
			request->version = wanted->version;
			break;
		case REQUEST_LEAVE:
			request->leaving.token = wanted->czxid;
			request->leaving.lock = data;
			data = NULL;
			break;
		case REQUEST_DELETE_GUARDED:
			several->guard_version = wanted->version;
			several->node_version = wanted->node_version;
			several->nodes = data;
			several->nodes_length = length;
			data = NULL;
			break;
		case REQUEST_CREATE_GUARDED:
			several->guard_version = wanted->version;
			several->guard = other_path;
			other_path = NULL;
			break;
		case REQUEST_MOVE:
			several->old_node = other_path;
			other_path = NULL;
			several->set_node = copy_blob(taken, 3);
			if (several->set_node != NULL)
				several->set_data = several->set_node +
					strlen(several->set_node) + 1;
			break;
		default:
			break;				/* the others have no more */
	}
	free(other_path);			/* of a kind that has none */
	if (data != NULL)
		request->content = (Content) {data, length};
}

static char *
copy_blob(const FrameTaken *taken, int blob)
{
	uint32_t	length = taken->frame.blob_lengths[blob];

	if (length == 0)
		return NULL;
	return memcpy(program_need(malloc(length)), taken->blobs[blob], length);
}
