/*-------------------------------------------------------------------------
 *
 * program_backend.c
 *	  The program's end of the channel: frames and the interrupt.
 *
 * What is not urgent stays in the buffer until something urgent goes out with
 * it: the reply to a contender's create costs no system call.
 *
 *-------------------------------------------------------------------------
 */
#include "program.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define READ_SIZE (64 * 1024)

/*
 * More bytes than this in one read are, as a rule, the deletes of some fifteen
 * locks or more, sent at the end of a transaction.  The backend does not wait
 * for their replies; its next task is to answer its own client.  If the
 * scheduler has given us the backend's processor we hand it back first.
 */
#define BURST_SIZE 4096

static bool is_channel_empty(const Session *session);

/* ---------------------------------------------------------------------
 * From the backend
 * ---------------------------------------------------------------------
 */

void
backend_read(Session *session)
{
	FrameBuffer *in = &session->in;
	ssize_t		received;

	if (!frame_buffer_reserve(in, READ_SIZE))
		exit(1);
	received = recv(PROTOCOL_CHANNEL_FD, in->bytes + in->end,
					in->size - in->end, MSG_DONTWAIT);
	if (received > 0)
		in->end += (size_t) received;
	else if (received == 0 || (errno != EAGAIN && errno != EINTR))
		backend_note_end(session);
	if (in->end - in->start > BURST_SIZE)
		sched_yield();
}

void
backend_note_end(Session *session)
{
	if (session->orphaned_at == 0)
		session->orphaned_at = protocol_now();
}

bool
backend_finish_use(const Session *session, uint64_t use)
{
	SharedPage *page = session->page;

	return atomic_load(&page->is_in_use) == 0 && is_channel_empty(session) &&
		use_finish(page, use);
}

/* Has the backend sent nothing that is not read, and is it still there? */
static bool
is_channel_empty(const Session *session)
{
	struct pollfd channel = {PROTOCOL_CHANNEL_FD, POLLIN, 0};

	return session->in.start == session->in.end &&
		poll(&channel, 1, 0) == 0;
}

void
backend_end_with_it(void)
{
	struct pollfd channel = {PROTOCOL_CHANNEL_FD, POLLRDHUP, 0};

	prctl(PR_SET_PDEATHSIG, SIGALRM, 0, 0, 0);
	if (poll(&channel, 1, 0) == 1)
		exit(0);
}

/* ---------------------------------------------------------------------
 * To the backend
 * ---------------------------------------------------------------------
 */

void
backend_put(Session *session, const Frame *frame,
			const FrameBlob blobs[FRAME_NBLOBS], bool is_urgent)
{
	if (session->orphaned_at != 0)
		return;
	if (!frame_put(&session->out, frame, blobs))
		exit(1);				/* the backend would wait for it for ever */
	session->is_out_urgent |= is_urgent;
}

void
backend_flush(Session *session)
{
	FrameBuffer *out = &session->out;

	while (session->is_out_urgent && session->orphaned_at == 0)
	{
		ssize_t		sent = send(PROTOCOL_CHANNEL_FD, out->bytes + out->start,
								out->end - out->start,
								MSG_NOSIGNAL | MSG_DONTWAIT);

		if (sent > 0)
		{
			frame_buffer_consume(out, (size_t) sent);
			atomic_fetch_add(&session->page->nflushed, 1);
			session->is_out_urgent = out->start < out->end;
		}
		else if (errno == EAGAIN)
			return;
		else if (errno != EINTR)
			backend_note_end(session);
	}
}

/*
 * The backend is the parent as long as it lives; and as long as its end of the
 * channel is open its number cannot have been given to anybody else.
 */
void
backend_interrupt(Session *session)
{
	struct pollfd channel = {PROTOCOL_CHANNEL_FD, 0, 0};

	if (getppid() == session->open.backend_pid &&
		(poll(&channel, 1, 0) == 0 || !(channel.revents & POLLHUP)))
		interrupt_send(session->page, session->open.backend_pid);
}
