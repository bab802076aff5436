/*-------------------------------------------------------------------------
 *
 * program_ready.c
 *	  The session's program: waiting for a backend with the session at hand.
 *
 * A program that the worker for ready sessions has started (ready_worker.c)
 * connects and then listens.  The first backend that comes gets the session,
 * which holds nothing yet, and takes the place of the worker at the channel.
 *
 * The one rule: the name is no file and has no permissions, so who comes must
 * be of our user, as the kernel tells.
 *
 *-------------------------------------------------------------------------
 */
#include "program.h"

#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static bool send_page(Session *session, int hangup_fd);

/* Should that fail, the worker's backends start their own. */
void
ready_listen(Session *session)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t		length = strlen(session->ready_name);

	if (length == 0 || session->ready_fd >= 0)
		return;
	session->ready_fd = socket(AF_UNIX,
							   SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	memcpy(address.sun_path + 1, session->ready_name, length);
	if (session->ready_fd >= 0 &&
		(bind(session->ready_fd, (struct sockaddr *) &address,
			  (socklen_t) (offsetof(struct sockaddr_un, sun_path) + 1 +
						   length)) != 0 ||
		 listen(session->ready_fd, 1) != 0))
	{
		close(session->ready_fd);
		session->ready_fd = -1;
	}
}

/*
 * The worker is told first, so that it does not take its end of the channel
 * for our death.  What the backend sends may be there already.
 */
void
ready_accept(Session *session)
{
	const Frame taken = {.kind = FRAME_TAKEN};
	const FrameBlob none[FRAME_NBLOBS] = {0};
	struct ucred peer = {0};
	socklen_t	size = sizeof(peer);
	int			hangup_fds[2];
	int			fd = accept4(session->ready_fd, NULL, NULL,
							 SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0)
		return;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
		peer.uid != geteuid() || pipe2(hangup_fds, O_CLOEXEC) != 0)
	{
		close(fd);
		return;
	}
	program_put(session, &taken, none, true);
	program_flush(session);
	dup2(fd, PROTOCOL_CHANNEL_FD);
	close(fd);
	close(session->ready_fd);
	session->ready_fd = -1;
	session->ready_name[0] = '\0';
	frame_buffer_free(&session->in);
	frame_buffer_free(&session->out);
	session->is_out_urgent = false;
	session->orphaned_at = 0;
	session->backend = peer.pid;
	session->is_child = false;
	session->stopped_at = 0;
	program_show_backend(session);
	session->is_status_news = true;
	session_report(session);

	/* our end of the pipe stays open for as long as we live */
	if (!send_page(session, hangup_fds[0]))
		shutdown(PROTOCOL_CHANNEL_FD, SHUT_RDWR);
	close(hangup_fds[0]);
	close(PROTOCOL_PAGE_FD);
}

/* Send the status, and with it the page and the end of the pipe. */
static bool
send_page(Session *session, int hangup_fd)
{
	union
	{
		struct cmsghdr header;
		char		space[CMSG_SPACE(2 * sizeof(int))];
	}			control;
	struct iovec bytes = {session->out.bytes + session->out.start,
		session->out.end - session->out.start
	};
	struct msghdr message = {
		.msg_iov = &bytes,.msg_iovlen = 1,
		.msg_control = &control,.msg_controllen = sizeof(control)
	};
	int			fds[2] = {PROTOCOL_PAGE_FD, hangup_fd};
	struct cmsghdr *header;

	memset(&control, 0, sizeof(control));
	header = CMSG_FIRSTHDR(&message);
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(fds));
	memcpy(CMSG_DATA(header), fds, sizeof(fds));
	if (sendmsg(PROTOCOL_CHANNEL_FD, &message, MSG_NOSIGNAL) !=
		(ssize_t) bytes.iov_len)
		return false;
	frame_buffer_consume(&session->out, bytes.iov_len);
	session->is_out_urgent = false;
	atomic_fetch_add(&session->page->nflushed, 1);
	return true;
}
