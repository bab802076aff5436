/*-------------------------------------------------------------------------
 *
 * client.c
 *	  The backend's end of the session: opens and closes it, makes requests,
 *	  keeps their replies.
 *
 * It knows nothing of PostgreSQL, so that it runs alone under
 * AddressSanitizer (test/unit/test_client.c).
 *
 * Ownership: requests and clients are malloc'ed, because PostgreSQL's error
 * exits leave requests behind.  A request is freed by its caller or with the
 * client.
 *
 * Each request is a frame to the session's program, and its reply one back.
 * What has to go on while the backend is busy or idle (repeating, undoing) is
 * the program's.  The program is handed numbers: a reply to a request that no
 * longer exists finds nothing.
 *
 * The program's frames are not trusted (protocol.c), for a hostile server may
 * have misled it.  It can be wrong about the ensemble, but not harm this
 * process.
 *
 *-------------------------------------------------------------------------
 */
#include "client.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "channel.h"

/*
 * Which replies a request may have says is_awaited(); any other one makes the
 * channel garbled.
 */
typedef enum RequestState
{
	ASKED,						/* there is no reply yet */
	ANSWERED,					/* reply is valid */
	ANSWERED_UNASKED			/* likewise, of a LEAVE that was silent: it is
								 * there for zklock_client_take_gone() */
} RequestState;

/* A request, until its caller frees it. */
struct ZkRequest
{
	uint64_t	id;				/* its slot in the low bits */
	ZkClient   *client;
	RequestKind kind;
	RequestState state;
	bool		is_place;		/* it makes one in a queue: that this is gone
								 * is another reply */
	ZkReply		reply;			/* valid unless ASKED */
	char	   *texts;			/* what its pointers point to, one block */
	char	   *path;			/* CREATE: what is to be made */
};

#define SLOT_BITS 16
#define NSLOTS ((uint64_t) 1 << SLOT_BITS)
#define SLOT_MASK (NSLOTS - 1)

/* The one watch that a client may have. */
typedef struct Watch
{
	uint64_t	request;		/* that has asked for it; 0: none is asked for */
	bool		is_over;		/* the server has it no more: its event was
								 * here, or there is no node */
	ZkWatchNews news;
} Watch;

/* A client, by mmap(). */
struct ZkClient
{
	ZkChannel	channel;
	char	   *program;		/* its path */
	FrameBuffer opening;		/* the frame that opened the session, to end
								 * it with should its program die */
	ZkClientStatus status;		/* as reported last */
	SessionTicket ticket;		/* valid if status.was_connected */
	char		last_error[512];
	uint64_t	nnews;			/* how often its program was found to have said
								 * something, or to have ended */
	uint64_t	nrequests;		/* sent, ever; the page has how many are over */
	uint64_t	nwithdrawn;		/* the same */
	int			many_depth;		/* of zklock_client_begin_many() */
	bool		is_flush_due;	/* at the end of that */
	Watch		watch;
	int			nunasked;		/* requests that are ANSWERED_UNASKED */

	/*
	 * Live requests by slot; a request's id is its generation in the high
	 * bits and its slot in the low ones, so that a stale id finds nothing.
	 */
	uint64_t	next_slot;		/* those below it are taken */
	uint64_t	generation;
	ZkRequest  *slots[NSLOTS];	/* what is not used of that takes no memory */
};

/* What is said of a channel that is over, and of its program's process. */
static const char *const end_texts[] = {
	[ZK_CHANNEL_ENDED] = "The program of the session, process %d, has ended",
	[ZK_CHANNEL_STUCK] = "The program of the session, process %d, stands still",
	[ZK_CHANNEL_GARBLED] = "The program of the session, process %d, has sent an invalid message",
	[ZK_CHANNEL_NO_MEMORY] = "Out of memory"
};

static bool put_opening(FrameBuffer *buffer, const ZkClientOptions *options,
						bool has_auth);
static void end_orphan(ZkClient *client);
static void take_frames(ZkClient *client);
static void take_status(ZkClient *client, const FrameTaken *taken,
						int64_t now);
static void copy_text(char *to, size_t size, const char *text);
static void take_reply(ZkClient *client, const FrameTaken *taken, Moment now);
static void take_unasked(ZkClient *client, const FrameTaken *taken,
						 Moment now);
static bool is_awaited(const ZkRequest *request, int32_t result);
static void answer_request(ZkRequest *request, const FrameTaken *taken,
						   Moment now);
static void take_watch(ZkClient *client, const FrameTaken *taken);
static bool copy_reply(ZkRequest *request, const FrameTaken *taken,
					   Moment now);
static void move_to_lost(ZkClient *client, ZkClientLoss loss);
static void move_session(ZkClient *client, ZkClientState state);
static void set_error(ZkClient *client, const char *format,...)
			__attribute__((format(printf, 2, 3)));
static void take_news(ZkClient *client);
static void take_loss(ZkClient *client);
static void refuse_interrupt(ZkClient *client);
static void end_channel(ZkClient *client, ZkChannelState state);
static void note_end(ZkClient *client);
static ZkRequest *find_request(ZkClient *client, uint64_t id);
static void free_request(ZkRequest *request);
static void put_note(ZkClient *client, FrameKind kind, uint64_t id);
static void put_frame(ZkClient *client, const Frame *frame,
					  const FrameBlob blobs[FRAME_NBLOBS]);
static void flush_unless_many(ZkClient *client);
static ZkRequest *new_request(ZkClient *client, RequestKind kind);

/* ---------------------------------------------------------------------
 * Public functions: session
 * ---------------------------------------------------------------------
 */

ZkClient *
zklock_client_open(const ZkClientOptions *options)
{
	ZkClient   *client = mmap(NULL, sizeof(*client), PROT_READ | PROT_WRITE,
							  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (client == MAP_FAILED)
		return NULL;
	client->program = strdup(options->program);
	if (client->program == NULL ||
		!put_opening(&client->opening, options, false) ||
		!put_opening(&client->channel.out, options, true))
	{
		zklock_client_close(client, 0);
		return NULL;
	}
	if (zklock_channel_open(&client->channel, options->program, PROTOCOL_TITLE,
							(int) getpid(), PROTOCOL_NO_STATE))
	{
		client->status.program_pid = client->channel.program;
		return client;
	}
	set_error(client, "Could not start the program \"%s\": %s",
			  options->program, strerror(errno));
	move_to_lost(client, ZK_LOSS_RESOURCES);
	return client;
}

int
zklock_client_fd(ZkClient *client)
{
	return client->channel.page != NULL ? client->channel.fd : -1;
}

void
zklock_client_flush(ZkClient *client)
{
	client->is_flush_due = false;
	zklock_channel_flush(&client->channel);
	if (client->channel.state != ZK_CHANNEL_OPEN)
		take_frames(client);
}

void
zklock_client_receive(ZkClient *client)
{
	(void) zklock_channel_receive(&client->channel, true);
	take_frames(client);
}

uint64_t
zklock_client_count_requests(const ZkClient *client)
{
	return client->nrequests;
}

void
zklock_client_poll(ZkClient *client)
{
	ZkClientStatus *status = &client->status;
	int64_t		now = protocol_now();

	take_news(client);
	if (status->state == ZK_CLIENT_CONNECTED ||
		status->state == ZK_CLIENT_SUSPENDED)
	{
		/* the page may say anything, but not that it is from the future */
		int64_t		alive_at = atomic_load(&client->channel.page->alive_at);

		if (alive_at > now)
			alive_at = now;
		status->lost_deadline = alive_at + status->session_timeout_ms;
		if (now >= status->lost_deadline)
			end_channel(client, ZK_CHANNEL_STUCK);
	}
	status->now = now;
}

bool
zklock_client_has_news(const ZkClient *client)
{
	return zklock_channel_has_news(&client->channel);
}

uint64_t
zklock_client_count_news(const ZkClient *client)
{
	return client->nnews;
}

const ZkClientStatus *
zklock_client_status(const ZkClient *client)
{
	return &client->status;
}

bool
zklock_client_is_undone(const ZkClient *client)
{
	const SharedPage *page = client->channel.page;

	return page == NULL || atomic_load(&page->nundone) >= client->nwithdrawn;
}

void
zklock_client_note_use(ZkClient *client, bool is_in_use)
{
	if (client->channel.page != NULL)
		atomic_store(&client->channel.page->is_in_use, is_in_use);
}

/* Without a page it is over, and says why by other ways. */
bool
zklock_client_begin_use(ZkClient *client)
{
	return client->channel.page == NULL || use_begin(client->channel.page);
}

/* What is still to be sent tells of requests that are over. */
void
zklock_client_end_use(ZkClient *client)
{
	if (!zklock_client_is_used(client))
		return;
	zklock_client_flush(client);
	use_end(client->channel.page);
}

bool
zklock_client_is_used(const ZkClient *client)
{
	return client->channel.page != NULL && use_is_begun(client->channel.page);
}

void
zklock_client_set_idle_timeout(ZkClient *client, int timeout_ms)
{
	if (client->channel.page != NULL)
		atomic_store(&client->channel.page->idle_ms, timeout_ms);
}

/*
 * The program first marks the loss in the page, and then checks whether an
 * interrupt is wanted.  We first say that one is wanted, and then check the
 * page.  So one of both notices.
 */
void
zklock_client_interrupt_on_loss(ZkClient *client, bool is_wanted)
{
	SharedPage *page = client->channel.page;

	if (page == NULL)
		return;
	if (!is_wanted)
	{
		refuse_interrupt(client);
		return;
	}
	/* another library may have taken the handler away since */
	zklock_channel_watch();
	if (atomic_load(&page->loss_interrupt) == INTERRUPT_WANTED &&
		!zklock_client_has_news(client))
		return;					/* it is wanted already */
	take_news(client);
	if (client->status.state != ZK_CLIENT_LOST) /* if for a lock, then again */
		refuse_interrupt(client);
	interrupt_want(page);
	take_news(client);
	zklock_client_interrupt_if_lost(client);
}

void
zklock_client_interrupt_if_lost(ZkClient *client)
{
	SharedPage *page = client->channel.page;

	if (page != NULL && client->status.state == ZK_CLIENT_LOST)
		interrupt_send(page, getpid());
}

uint64_t
zklock_client_count_interrupts(const ZkClient *client)
{
	const SharedPage *page = client->channel.page;

	return page == NULL ? 0 : atomic_load(&page->ninterrupts);
}

bool
zklock_client_is_interrupt_under_way(const ZkClient *client)
{
	const SharedPage *page = client->channel.page;

	return page != NULL &&
		atomic_load(&page->loss_interrupt) == INTERRUPT_UNDER_WAY;
}

const char *
zklock_client_last_error(const ZkClient *client)
{
	return client->last_error;
}

void
zklock_client_close(ZkClient *client, int wait_ms)
{
	ZkChannel  *channel = &client->channel;

	if (channel->page != NULL)
	{
		if (channel->owner != getpid())
			return;				/* the parent's session, not ours to close */
		refuse_interrupt(client);
		zklock_channel_flush(channel);
		zklock_client_receive(client);	/* it may be over, unnoticed */
	}
	if (client->status.loss == ZK_LOSS_PROGRAM)
		wait_ms = ZK_CHANNEL_KILL;
	(void) zklock_channel_close(channel, wait_ms);	/* it says nothing more */
	if (client->status.loss == ZK_LOSS_PROGRAM &&
		client->status.was_connected)
		end_orphan(client);
	for (uint64_t i = 0; i < NSLOTS; i++)
		if (client->slots[i] != NULL)
			free_request(client->slots[i]);
	free(client->program);
	frame_buffer_free(&client->opening);
	munmap(client, sizeof(*client));
}

/* ---------------------------------------------------------------------
 * The session's beginning and end
 * ---------------------------------------------------------------------
 */

/*
 * Write the frame that opens the session; false without memory.  The frame that
 * is kept to end the session has no credentials: the ticket of a session is all
 * it takes to close it.  But an ensemble that enforces authentication refuses a
 * client that presents none.  It does not check those of "digest", so any will
 * do.
 */
static bool
put_opening(FrameBuffer *buffer, const ZkClientOptions *options, bool has_auth)
{
	Frame		frame = {.kind = FRAME_OPEN};
	const char *scheme = options->auth_scheme;
	const char *credentials = options->auth_credentials;

	if (!has_auth && scheme != NULL)
	{
		bool		is_digest = strcmp(scheme, "digest") == 0;

		scheme = is_digest ? scheme : NULL;
		credentials = is_digest ? "zklock:ends" : NULL;
	}
	frame.u.open.backend_pid = getpid();
	frame.u.open.session_timeout_ms = options->session_timeout_ms;
	frame.u.open.first_server = options->first_server;
	frame.u.open.is_auth_private = options->is_auth_private;
	return frame_put(buffer, &frame, (FrameBlob[FRAME_NBLOBS]) {
		frame_text(options->servers), frame_text(scheme),
		frame_text(credentials), frame_text(options->tls)
	});
}

/*
 * The program is dead, its session is not: the ensemble keeps it, and its
 * nodes, for the session timeout.  Another program takes it over and, for
 * want of a backend, ends it.
 */
static void
end_orphan(ZkClient *client)
{
	ZkChannel	ending = {0};

	memcpy(client->opening.bytes + offsetof(Frame, u.open.ticket),
		   &client->ticket, sizeof(client->ticket));
	ending.out = client->opening;
	memset(&client->opening, 0, sizeof(client->opening));
	if (zklock_channel_open(&ending, client->program, PROTOCOL_TITLE,
							(int) getpid(), "ending"))
		zklock_channel_flush(&ending);
	(void) zklock_channel_close(&ending, 0);	/* it goes on alone */
}

/* ---------------------------------------------------------------------
 * What the program says
 * ---------------------------------------------------------------------
 */

/* Receive and handle what the page announces. */
static void
take_news(ZkClient *client)
{
	if (zklock_channel_receive(&client->channel, false))
		take_frames(client);
}

/*
 * A loss is in the page, too: its frame may be behind a long one that is not
 * complete yet.
 */
static void
take_loss(ZkClient *client)
{
	SharedPage *page = client->channel.page;
	uint32_t	lost = page != NULL ? atomic_load(&page->lost) : ZK_LOSS_NONE;

	if (lost > ZK_LOSS_LAST)
		lost = ZK_LOSS_PROGRAM;
	if (lost != ZK_LOSS_NONE)
		move_to_lost(client, (ZkClientLoss) lost);
}

/* The page may say that more are over than there ever were. */
int
zklock_client_count_pending(const ZkClient *client)
{
	const SharedPage *page = client->channel.page;
	uint64_t	nfinished;

	if (page == NULL)
		return 0;
	nfinished = atomic_load(&page->nfinished);
	if (nfinished >= client->nrequests)
		return 0;
	return (int) (client->nrequests - nfinished);
}

/*
 * From now on no interrupt comes.  A program that stands still in the middle
 * of one could send it at any time: it is killed.
 */
static void
refuse_interrupt(ZkClient *client)
{
	if (interrupt_refuse(client->channel.page))
		return;
	zklock_channel_kill(&client->channel);
	end_channel(client, ZK_CHANNEL_STUCK);
}

static void
take_frames(ZkClient *client)
{
	FrameTaken	taken;
	Moment		now = {0};

	client->nnews++;
	/* once for all: what a frame says is not from later than that */
	if (client->channel.in.start < client->channel.in.end)
		now = protocol_moment();
	while (zklock_channel_take(&client->channel, &taken))
	{
		/* a FRAME_WAKE has woken us: that is all */
		if (taken.frame.kind == FRAME_STATUS)
			take_status(client, &taken, now.boot_ms);
		else if (taken.frame.kind == FRAME_REPLY)
			take_reply(client, &taken, now);
		else if (taken.frame.kind == FRAME_WATCH)
			take_watch(client, &taken);
		frame_buffer_consume(&client->channel.in, 0);
	}
	take_loss(client);
	note_end(client);
}

static void
take_status(ZkClient *client, const FrameTaken *taken, int64_t now)
{
	const FrameStatus *news = &taken->frame.u.status;
	ZkClientStatus *status = &client->status;

	if (taken->blobs[1] != NULL)
		copy_text(client->last_error, sizeof(client->last_error),
				  taken->blobs[1]);
	if (status->state == ZK_CLIENT_LOST)
		return;
	if (status->state != (ZkClientState) news->state)
	{
		if (!move_is_legal(protocol_session_moves, (int) status->state,
						   news->state))
		{
			zklock_channel_break(&client->channel, ZK_CHANNEL_GARBLED);
			return;
		}
		move_session(client, (ZkClientState) news->state);
	}
	status->loss = news->loss;
	if (news->was_connected)	/* nobody can take that back */
	{
		status->was_connected = true;
		status->session_id = news->ticket.session_id;
		status->session_timeout_ms = news->session_timeout_ms;
		client->ticket = news->ticket;
	}
	status->suspended_at = news->suspended_at < now ? news->suspended_at : now;
	status->lost_at = news->lost_at < now ? news->lost_at : now;
	if (status->lost_at < status->suspended_at)
		status->lost_at = status->suspended_at;
	status->nrefused = news->nrefused;
	status->nput_off = news->nput_off;
	copy_text(status->server, sizeof(status->server), taken->blobs[0]);
	copy_text(status->library, sizeof(status->library), taken->blobs[2]);
	copy_text(status->tls, sizeof(status->tls), taken->blobs[3]);
}

/*
 * This text goes to users and into the log: printable ASCII, clipped, with a
 * question mark for everything else.
 */
static void
copy_text(char *to, size_t size, const char *text)
{
	snprintf(to, size, "%s", text != NULL ? text : "");
	for (char *c = to; *c != '\0'; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
}

static void
take_reply(ZkClient *client, const FrameTaken *taken, Moment now)
{
	const FrameReply *from = &taken->frame.u.reply;
	ZkRequest  *request;

	if (taken->frame.id == 0)
	{
		take_unasked(client, taken, now);
		return;
	}
	request = find_request(client, taken->frame.id);
	if (request == NULL)
		return;					/* it was freed */
	if (!is_awaited(request, from->result) ||
		(request->kind == REQUEST_CREATE && from->result == ZK_OK &&
		 !protocol_is_made(request->path, taken->blobs[0])))
	{
		zklock_channel_break(&client->channel, ZK_CHANNEL_GARBLED);
		return;
	}
	answer_request(request, taken, now);

	/* without an answer, or a node, there is no watch */
	if (request->id == client->watch.request && request->reply.result != ZK_OK)
		client->watch.is_over = true;
}

/*
 * The program tells of a node that was left, and that somebody else had deleted
 * before.  Without memory nobody learns of it.
 */
static void
take_unasked(ZkClient *client, const FrameTaken *taken, Moment now)
{
	ZkRequest  *request = new_request(client, REQUEST_LEAVE);

	if (request == NULL)
		return;
	answer_request(request, taken, now);
	request->state = ANSWERED_UNASKED;
	client->nunasked++;
}

/* Is that result one that the request waits for? */
static bool
is_awaited(const ZkRequest *request, int32_t result)
{
	return request->state == ASKED ||
		(request->is_place && result == ZK_NO_NODE);
}

/*
 * Without memory for its reply the outcome of a create is unknown: the node may
 * be there.
 */
static void
answer_request(ZkRequest *request, const FrameTaken *taken, Moment now)
{
	if (!copy_reply(request, taken, now))
	{
		bool		may_be_made = request->kind == REQUEST_CREATE &&
			taken->frame.u.reply.result == ZK_OK;

		request->reply.result = may_be_made ? ZK_UNKNOWN_OUTCOME : ZK_NO_MEMORY;
	}
	request->state = ANSWERED;
}

/*
 * Copy a reply with all that hangs on it into one block; false, and an empty
 * one, without memory.
 */
static bool
copy_reply(ZkRequest *request, const FrameTaken *taken, Moment now)
{
	const FrameReply *from = &taken->frame.u.reply;
	const uint32_t *lengths = taken->frame.blob_lengths;
	ZkReply    *reply = &request->reply;
	size_t		pointers = (size_t) from->nchildren * sizeof(char *);
	char	  **children;
	char	   *next;

	free(request->texts);
	*reply = (ZkReply) {.code_text = "no reply"};
	request->texts = malloc(pointers + lengths[0] + lengths[1] + lengths[2] +
							1);
	if (request->texts == NULL)
		return false;
	memcpy(reply, from, ZK_REPLY_SENT);
	reply->proof = contact_earlier(from->proof, now);
	reply->nbelow = from->nbelow < 0 ? 0 : from->nbelow;
	reply->nchanges = from->nchanges;

	children = (char **) request->texts;
	next = request->texts + pointers;
	if (lengths[2] > 0)
		memcpy(next, taken->blobs[2], lengths[2]);
	for (int32_t i = 0; i < from->nchildren; i++)
	{
		children[i] = next;
		next += strlen(next) + 1;
	}
	reply->children = (const char *const *) children;
	if (lengths[0] > 0)
	{
		memcpy(next, taken->blobs[0], lengths[0]);
		if (from->result == ZK_OK)
			reply->path = next;
		else
			reply->code_text = next;
		next += lengths[0];
	}
	if (lengths[1] > 0)
	{
		reply->data = memcpy(next, taken->blobs[1], lengths[1]);
		reply->data_length = (int) lengths[1];
	}
	return true;
}

static void
take_watch(ZkClient *client, const FrameTaken *taken)
{
	ZkRequest  *request = find_request(client, taken->frame.id);

	if (taken->frame.id == 0 || taken->frame.id != client->watch.request)
		return;

	/* ahead of the answer it is the event of an earlier watch of the node */
	client->watch.is_over = request == NULL || request->state != ASKED;
	if (client->watch.news != ZK_WATCH_LOOK_AGAIN)
		client->watch.news = taken->frame.u.watch_news;
}

static void
end_channel(ZkClient *client, ZkChannelState state)
{
	zklock_channel_break(&client->channel, state);
	note_end(client);
}

/* If the channel is over and the session was not, it is now. */
static void
note_end(ZkClient *client)
{
	ZkChannelState state = client->channel.state;

	if (state == ZK_CHANNEL_OPEN)
		return;
	client->status.program_pid = 0;
	if (client->status.state == ZK_CLIENT_LOST)
		return;
	if (state == ZK_CHANNEL_WRONG_VERSION)
		set_error(client, "The program \"%s\" is of another version of zklock than this server's library; restart the server",
				  client->program);
	else
		set_error(client, end_texts[state], (int) client->channel.program);
	move_to_lost(client, ZK_LOSS_PROGRAM);
}

/* The session is over for this backend, whatever its program thinks. */
static void
move_to_lost(ZkClient *client, ZkClientLoss loss)
{
	if (client->status.state == ZK_CLIENT_LOST)
		return;
	client->status.lost_at = protocol_now();
	if (client->status.suspended_at == 0)
		client->status.suspended_at = client->status.lost_at;
	client->status.loss = loss;
	move_session(client, ZK_CLIENT_LOST);
	zklock_channel_break(&client->channel, ZK_CHANNEL_ENDED);
}

/*
 * The one place where a session changes its state.  Who calls has asked whether
 * that is legal: what the program says may not be, and a loss counts once.
 */
static void
move_session(ZkClient *client, ZkClientState state)
{
	assert(move_is_legal(protocol_session_moves, (int) client->status.state,
						 (int) state));
	if (state == ZK_CLIENT_CONNECTED)
		client->status.nconnects++;
	client->status.state = state;
	client->watch.news = ZK_WATCH_LOOK_AGAIN;
}

static void
set_error(ZkClient *client, const char *format,...)
{
	va_list		args;

	va_start(args, format);
	vsnprintf(client->last_error, sizeof(client->last_error), format, args);
	va_end(args);
}

/* ---------------------------------------------------------------------
 * Public functions: requests
 * ---------------------------------------------------------------------
 */

/* What a request has besides its FrameRequest, as that says. */
typedef struct Contents
{
	const char *path;
	const char *other_path;
	FrameBlob	data;
	FrameBlob	more;
} Contents;

/* What is asked of a session that is over is dropped, and not counted. */
static bool
put_request(ZkClient *client, uint64_t id, const FrameRequest *what,
			const Contents *contents)
{
	const Frame frame = {
		.kind = FRAME_REQUEST, .id = id, .u.request = *what
	};
	const FrameBlob blobs[FRAME_NBLOBS] = {
		frame_text(contents->path), frame_text(contents->other_path),
		contents->data, contents->more
	};

	if (client->status.state == ZK_CLIENT_LOST)
		return true;
	if (!frame_put(&client->channel.out, &frame, blobs))
		return false;
	client->nrequests++;
	client->is_flush_due = true;
	return true;
}

/* Make a request and have it sent; NULL without memory. */
static ZkRequest *
ask_with(ZkClient *client, const FrameRequest *what, const Contents *contents)
{
	ZkRequest  *request = new_request(client, what->kind);

	if (request == NULL)
		return NULL;
	request->is_place = what->node_kind == ZK_EPHEMERAL_SEQUENTIAL;
	if (what->kind == REQUEST_CREATE)
		request->path = strdup(contents->path);
	if ((what->kind == REQUEST_CREATE && request->path == NULL) ||
		!put_request(client, request->id, what, contents))
	{
		free_request(request);
		return NULL;
	}
	if (what->is_watched)
	{
		client->watch.request = request->id;
		client->watch.news = ZK_WATCH_QUIET;
		client->watch.is_over = false;
	}
	return request;
}

/* The same; the paths and the data, or NULL, are as FrameRequest has them. */
static ZkRequest *
ask_ensemble(ZkClient *client, const FrameRequest *what, const char *path,
			 const char *other_path, const char *data, int length)
{
	const Contents contents = {
		path, other_path, {data, (size_t) length}, {0}
	};

	return ask_with(client, what, &contents);
}

/* The same for a request without a reply; false without memory. */
static bool
tell_ensemble(ZkClient *client, const FrameRequest *what, const char *path,
			  const char *other_path, const char *data, int length)
{
	const Contents contents = {
		path, other_path, {data, (size_t) length}, {0}
	};

	if (!put_request(client, 0, what, &contents))
		return false;
	flush_unless_many(client);
	return true;
}

/* Of data that is text; NULL is none. */
static int
length_of(const char *data)
{
	return data != NULL ? (int) strlen(data) : 0;
}

ZkRequest *
zklock_client_create(ZkClient *client, const char *path, ZkNodeKind kind,
					 const char *data)
{
	return ask_ensemble(client, &(FrameRequest) {
		.kind = REQUEST_CREATE, .node_kind = kind
	}, path, NULL, data, length_of(data));
}

ZkRequest *
zklock_client_read(ZkClient *client, ZkRead read, const char *path)
{
	static const FrameRequest reads[] = {
		[ZK_GET] = {.kind = REQUEST_GET},
		[ZK_GET_AND_WATCH] = {.kind = REQUEST_GET,.is_watched = true},
		[ZK_LIST] = {.kind = REQUEST_LIST},
		[ZK_LIST_AND_WATCH] = {.kind = REQUEST_LIST,.is_watched = true},
		[ZK_GET_ACL] = {.kind = REQUEST_GET_ACL},
		[ZK_CHECK] = {.kind = REQUEST_CHECK}
	};

	return ask_ensemble(client, &reads[read], path, NULL, NULL, 0);
}

ZkRequest *
zklock_client_check(ZkClient *client, const char *path, int64_t czxid)
{
	return ask_ensemble(client, &(FrameRequest) {
		.kind = REQUEST_CHECK, .czxid = czxid
	}, path, NULL, NULL, 0);
}

ZkWatchNews
zklock_client_watch_news(const ZkClient *client)
{
	return client->watch.news;
}

void
zklock_client_unwatch(ZkClient *client)
{
	if (client == NULL || client->watch.request == 0)
		return;
	take_news(client);
	if (!client->watch.is_over)
		put_note(client, FRAME_UNWATCH, client->watch.request);
	client->watch.request = 0;
	if (client->is_flush_due)
		flush_unless_many(client);	/* to the program this is a waiter no more */
}

ZkRequest *
zklock_client_move(ZkClient *client, const ZkMove *move)
{
	const FrameRequest what = {
		.kind = REQUEST_MOVE,.node_kind = move->kind
	};
	Contents	contents = {
		move->to, move->from, {move->data, strlen(move->data)}, {0}
	};
	size_t		path_size;
	char	   *more;
	ZkRequest  *request;

	if (move->set == NULL)
		return ask_with(client, &what, &contents);
	path_size = strlen(move->set) + 1;
	contents.more.length = path_size + strlen(move->set_data) + 1;
	contents.more.bytes = more = malloc(contents.more.length);
	if (more == NULL)
		return NULL;
	strcpy(more, move->set);
	strcpy(more + path_size, move->set_data);
	request = ask_with(client, &what, &contents);
	free(more);
	return request;
}

ZkRequest *
zklock_client_remove(ZkClient *client, const char *path, int version)
{
	return ask_ensemble(client, &(FrameRequest) {
		.kind = REQUEST_DELETE, .version = version
	}, path, NULL, NULL, 0);
}

ZkRequest *
zklock_client_remove_guarded(ZkClient *client, const char *guard, int version,
							 const char *const *paths, int npaths,
							 int node_version)
{
	size_t		length = 0;
	char	   *data;
	char	   *next;
	ZkRequest  *request;

	for (int i = 0; i < npaths; i++)
		length += strlen(paths[i]) + 1;
	data = next = malloc(length);
	if (data == NULL)
		return NULL;
	for (int i = 0; i < npaths; i++)
		next = stpcpy(next, paths[i]) + 1;
	request = ask_ensemble(client, &(FrameRequest) {
		.kind = REQUEST_DELETE_GUARDED, .version = version,
		.node_version = node_version
	}, guard, NULL, data, (int) length);
	free(data);
	return request;
}

ZkRequest *
zklock_client_create_guarded(ZkClient *client, const char *path,
							 const char *guard, int version, const char *data)
{
	return ask_ensemble(client, &(FrameRequest) {
		.kind = REQUEST_CREATE_GUARDED, .node_kind = ZK_PERSISTENT_OWN,
		.version = version
	}, path, guard, data, length_of(data));
}

ZkRequest *
zklock_client_set(ZkClient *client, const char *path, const char *data,
				  int version)
{
	return ask_ensemble(client, &(FrameRequest) {
		.kind = REQUEST_SET, .version = version
	}, path, NULL, data, length_of(data));
}

const ZkReply *
zklock_client_reply(const ZkRequest *request)
{
	return request->state != ASKED ? &request->reply : NULL;
}

/*
 * Of a request without an answer, at least the request must be sent: what it
 * asks for is done all the same.
 */
void
zklock_client_free(ZkRequest *request)
{
	if (request == NULL)
		return;
	if (request->kind == REQUEST_CREATE)
		put_note(request->client, FRAME_FREE, request->id);
	if (request->state == ASKED)
		flush_unless_many(request->client);
	free_request(request);
}

void
zklock_client_withdraw(ZkRequest *request)
{
	if (request == NULL)
		return;
	put_note(request->client, FRAME_WITHDRAW, request->id);
	request->client->nwithdrawn++;
	flush_unless_many(request->client);
	free_request(request);
}

bool
zklock_client_delete(ZkClient *client, const char *path, int version)
{
	return tell_ensemble(client, &(FrameRequest) {
		.kind = REQUEST_DELETE, .version = version
	}, path, NULL, NULL, 0);
}

bool
zklock_client_leave(ZkClient *client, const char *path, const char *name,
					int64_t token, bool is_awaited)
{
	if (!tell_ensemble(client, &(FrameRequest) {
		.kind = REQUEST_LEAVE, .version = ZK_ANY_VERSION, .czxid = token,
		.is_awaited = is_awaited
	}, path, NULL, name, (int) strlen(name) + 1))
		return false;
	client->nwithdrawn += is_awaited;
	return true;
}

ZkRequest *
zklock_client_take_gone(ZkClient *client)
{
	uint64_t	slot = 0;

	if (client->nunasked == 0)
		return NULL;
	client->nunasked--;
	while (client->slots[slot] == NULL ||
		   client->slots[slot]->state != ANSWERED_UNASKED)
		slot++;
	client->slots[slot]->state = ANSWERED;
	return client->slots[slot];
}

void
zklock_client_begin_many(ZkClient *client)
{
	if (client != NULL)
		client->many_depth++;
}

void
zklock_client_end_many(ZkClient *client)
{
	if (client != NULL && --client->many_depth == 0 && client->is_flush_due)
		zklock_client_flush(client);
}

bool
zklock_client_announce(ZkClient *client, const char *path,
					   const char *data)
{
	return tell_ensemble(client, &(FrameRequest) {
		.kind = REQUEST_SET, .version = ZK_ANY_VERSION
	}, path, NULL, data, length_of(data));
}

void
zklock_client_refuse_page(ZkClient *client)
{
	end_channel(client, ZK_CHANNEL_GARBLED);
}

KeptLock *
zklock_client_kept(ZkClient *client)
{
	if (client == NULL || client->channel.page == NULL)
		return NULL;
	return client->channel.page->kept;
}

void
zklock_client_tell_kept(ZkClient *client, int slot, uint32_t generation,
						const char *node, const char *data)
{
	const Frame frame = {
		.kind = FRAME_KEEP, .u.keep = {(uint32_t) slot, generation}
	};
	const FrameBlob blobs[FRAME_NBLOBS] = {
		frame_text(node), frame_text(data)
	};

	put_frame(client, &frame, blobs);
	flush_unless_many(client);
}

/* ---------------------------------------------------------------------
 * Requests: made, found, freed; frames that are sent
 * ---------------------------------------------------------------------
 */

/* The live request of that number, or NULL. */
static ZkRequest *
find_request(ZkClient *client, uint64_t id)
{
	ZkRequest  *request = client->slots[id & SLOT_MASK];

	return request != NULL && request->id == id ? request : NULL;
}

static void
free_request(ZkRequest *request)
{
	ZkClient   *client = request->client;
	uint64_t	slot = request->id & SLOT_MASK;

	client->slots[slot] = NULL;
	if (slot < client->next_slot)
		client->next_slot = slot;
	free(request->path);
	free(request->texts);
	free(request);
}

/*
 * Send a frame of its own, without content.  Without memory the session is
 * given up: what is withdrawn and not undone would block others for ever.
 */
static void
put_note(ZkClient *client, FrameKind kind, uint64_t id)
{
	const Frame frame = {.kind = kind, .id = id};

	put_frame(client, &frame, NULL);
}

/* The same for any frame. */
static void
put_frame(ZkClient *client, const Frame *frame,
		  const FrameBlob blobs[FRAME_NBLOBS])
{
	if (client->status.state != ZK_CLIENT_LOST &&
		!frame_put(&client->channel.out, frame, blobs))
		end_channel(client, ZK_CHANNEL_NO_MEMORY);

	/* that a request is freed, and was answered, can wait for the next frame */
	client->is_flush_due |= frame->kind != FRAME_FREE;
}

static void
flush_unless_many(ZkClient *client)
{
	client->is_flush_due = true;
	if (client->many_depth == 0)
		zklock_client_flush(client);
}

/*
 * Make a request and give it a number.  NULL without memory, or with 2^16
 * requests under way.
 */
static ZkRequest *
new_request(ZkClient *client, RequestKind kind)
{
	ZkRequest  *request = calloc(1, sizeof(*request));
	uint64_t	slot = client->next_slot;

	while (slot <= SLOT_MASK && client->slots[slot] != NULL)
		slot++;
	client->next_slot = slot;
	if (request == NULL || slot > SLOT_MASK)
	{
		free(request);
		return NULL;
	}
	client->generation++;
	request->id = (client->generation << SLOT_BITS) | slot;
	request->client = client;
	request->kind = kind;
	client->slots[slot] = request;
	return request;
}
