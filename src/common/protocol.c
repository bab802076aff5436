/*-------------------------------------------------------------------------
 *
 * protocol.c
 *	  Frames between backend and program: writes, reads and checks them.  Has
 *	  the interrupts in the shared page.
 *
 * Linked into both.  libc only; the one state is the caller's.
 *
 *-------------------------------------------------------------------------
 */
#include "protocol.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* Most digits of a sequence number: 32 bits, ten digits at least. */
#define NUMBER_MAX 11

/*
 * How long interrupt_refuse() waits at most for a signal that is under way.
 */
#define INTERRUPT_WAIT_MS 1000

/* Smallest allocation of a buffer. */
#define BUFFER_MIN 4096

/* A buffer that has grown beyond this is given back when it is empty. */
#define BUFFER_KEEP (256 * 1024)

/*
 * The blobs of each kind of frame: T is a text, t one or none, B are bytes or
 * none, and - is none.
 */
static const char *const blob_kinds[FRAME_LAST + 1] = {
	[FRAME_OPEN] = "Tttt",
	[FRAME_REQUEST] = "TtBB",
	[FRAME_FREE] = "----",
	[FRAME_WITHDRAW] = "----",
	[FRAME_UNWATCH] = "----",
	[FRAME_KEEP] = "TT--",
	[FRAME_ASK] = "Tt--",
	[FRAME_STATUS] = "tttt",
	[FRAME_REPLY] = "tBB-",
	[FRAME_WATCH] = "----",
	[FRAME_WAKE] = "----",
	[FRAME_ANSWER] = "tt--",
};

const Moves protocol_session_moves[] = {
	[ZK_CLIENT_STARTING] = MOVE_TO(ZK_CLIENT_CONNECTING) |
	MOVE_TO(ZK_CLIENT_LOST),
	[ZK_CLIENT_CONNECTING] = MOVE_TO(ZK_CLIENT_CONNECTED) |
	MOVE_TO(ZK_CLIENT_LOST),
	[ZK_CLIENT_CONNECTED] = MOVE_TO(ZK_CLIENT_CONNECTED) |
	MOVE_TO(ZK_CLIENT_SUSPENDED) | MOVE_TO(ZK_CLIENT_LOST),
	[ZK_CLIENT_SUSPENDED] = MOVE_TO(ZK_CLIENT_CONNECTED) |
	MOVE_TO(ZK_CLIENT_LOST),
	[ZK_CLIENT_LOST] = 0
};

static bool is_head_good(const Frame *frame, FrameDirection direction);
static bool is_blob(const FrameTaken *taken, int blob, char kind);
static bool is_good(const FrameTaken *taken);
static bool is_request_good(const FrameTaken *taken);
static bool is_among(int32_t value, int32_t last);

int64_t
protocol_clock(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (int64_t) now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/*
 * CLOCK_BOOTTIME, because leases go on running while the machine is
 * suspended.
 */
int64_t
protocol_now(void)
{
	return protocol_clock(CLOCK_BOOTTIME);
}

Moment
protocol_moment(void)
{
	return (Moment)
	{
		.boot_ms = protocol_now(), .wall_ms = protocol_clock(CLOCK_REALTIME)
	};
}

const char *
protocol_state(ZkClientState state)
{
	static const char *const states[] = {
		[ZK_CLIENT_STARTING] = "connecting",
		[ZK_CLIENT_CONNECTING] = "connecting",
		[ZK_CLIENT_CONNECTED] = "connected",
		[ZK_CLIENT_SUSPENDED] = "suspended",
		[ZK_CLIENT_LOST] = "lost"
	};

	return states[state];
}

const char *
protocol_end_state(ZkClientState state, ZkClientLoss loss)
{
	if (state == ZK_CLIENT_LOST && loss == ZK_LOSS_IDLE)
		return "idle";
	return protocol_state(state);
}

bool
protocol_is_made(const char *path, const char *node)
{
	size_t		length = strlen(path);

	if (node == NULL || strncmp(path, node, length) != 0)
		return false;
	node += length;
	return strlen(node) <= NUMBER_MAX &&
		strspn(node, "-0123456789") == strlen(node);
}

/* ---------------------------------------------------------------------
 * Buffers
 * ---------------------------------------------------------------------
 */

bool
frame_buffer_reserve(FrameBuffer *buffer, size_t size)
{
	size_t		wanted;
	char	   *bytes;

	if (buffer->size - buffer->end >= size)
		return true;
	if (buffer->start > 0)
	{
		memmove(buffer->bytes, buffer->bytes + buffer->start,
				buffer->end - buffer->start);
		buffer->end -= buffer->start;
		buffer->start = 0;
		if (buffer->size - buffer->end >= size)
			return true;
	}
	wanted = buffer->size > BUFFER_MIN ? buffer->size : BUFFER_MIN;
	while (wanted - buffer->end < size)
		wanted *= 2;
	bytes = realloc(buffer->bytes, wanted);
	if (bytes == NULL)
		return false;
	buffer->bytes = bytes;
	buffer->size = wanted;
	return true;
}

/*
 * There are credentials among what it holds, which must not stay in memory.
 */
static void
wipe_buffer(FrameBuffer *buffer)
{
	if (buffer->bytes != NULL)
		explicit_bzero(buffer->bytes, buffer->end);
}

void
frame_buffer_consume(FrameBuffer *buffer, size_t length)
{
	buffer->start += length;
	if (buffer->start < buffer->end)
		return;
	wipe_buffer(buffer);
	buffer->start = buffer->end = 0;
	if (buffer->size > BUFFER_KEEP)
		frame_buffer_free(buffer);
}

void
frame_buffer_free(FrameBuffer *buffer)
{
	wipe_buffer(buffer);
	free(buffer->bytes);
	memset(buffer, 0, sizeof(*buffer));
}

/* ---------------------------------------------------------------------
 * Writing and reading
 * ---------------------------------------------------------------------
 */

FrameBlob
frame_text(const char *text)
{
	FrameBlob	blob = {text, text != NULL ? strlen(text) + 1 : 0};

	return blob;
}

bool
frame_put(FrameBuffer *buffer, const Frame *frame,
		  const FrameBlob blobs[FRAME_NBLOBS])
{
	static const FrameBlob none[FRAME_NBLOBS];
	Frame		head = *frame;
	size_t		length = sizeof(head);

	if (blobs == NULL)
		blobs = none;
	for (int i = 0; i < FRAME_NBLOBS; i++)
	{
		if (blobs[i].length > FRAME_MAX - length)
			return false;
		length += blobs[i].length;
		head.blob_lengths[i] = (uint32_t) blobs[i].length;
	}
	if (!frame_buffer_reserve(buffer, length))
		return false;
	head.length = (uint32_t) length;
	head.version = PROTOCOL_VERSION;
	memcpy(buffer->bytes + buffer->end, &head, sizeof(head));
	buffer->end += sizeof(head);
	for (int i = 0; i < FRAME_NBLOBS; i++)
	{
		if (blobs[i].length == 0)
			continue;
		memcpy(buffer->bytes + buffer->end, blobs[i].bytes, blobs[i].length);
		buffer->end += blobs[i].length;
	}
	return true;
}

FrameVerdict
frame_take(FrameBuffer *buffer, FrameDirection direction, FrameTaken *taken)
{
	size_t		available = buffer->end - buffer->start;
	const char *bytes = buffer->bytes + buffer->start;
	Frame	   *frame = &taken->frame;

	if (available < offsetof(Frame, id))
		return FRAME_INCOMPLETE;
	memcpy(frame, bytes, offsetof(Frame, id));
	if (frame->version != PROTOCOL_VERSION)
		return FRAME_WRONG_VERSION;
	if (available < sizeof(*frame))
		return FRAME_INCOMPLETE;
	memcpy(frame, bytes, sizeof(*frame));
	if (!is_head_good(frame, direction))
		return FRAME_INVALID;
	if (available < frame->length)
		return FRAME_INCOMPLETE;

	bytes += sizeof(*frame);
	for (int i = 0; i < FRAME_NBLOBS; i++)
	{
		taken->blobs[i] = frame->blob_lengths[i] > 0 ? bytes : NULL;
		bytes += frame->blob_lengths[i];
	}
	if (!is_good(taken))
		return FRAME_INVALID;
	buffer->start += frame->length;
	return FRAME_COMPLETE;
}

int
frame_count_texts(const FrameTaken *taken, int blob)
{
	uint32_t	length = taken->frame.blob_lengths[blob];
	int			count = 0;

	if (length > 0 && taken->blobs[blob][length - 1] != '\0')
		return -1;
	for (uint32_t i = 0; i < length; i++)
		count += taken->blobs[blob][i] == '\0';
	return count;
}

/* As far as that can be told of a frame without its blobs. */
static bool
is_head_good(const Frame *frame, FrameDirection direction)
{
	uint64_t	length = sizeof(*frame);

	for (int i = 0; i < FRAME_NBLOBS; i++)
		length += frame->blob_lengths[i];
	return length == frame->length && length <= FRAME_MAX &&
		frame->kind >= FRAME_OPEN && frame->kind <= FRAME_LAST &&
		(frame->kind <= FRAME_LAST_TO_PROGRAM) ==
		(direction == FRAME_TO_PROGRAM);
}

/* Is it one of that kind?  A text ends with its only NUL. */
static bool
is_blob(const FrameTaken *taken, int blob, char kind)
{
	uint32_t	length = taken->frame.blob_lengths[blob];
	const char *bytes = taken->blobs[blob];

	if (length == 0)
		return kind != 'T';
	return kind == 'B' ||
		(kind != '-' && memchr(bytes, '\0', length) == bytes + length - 1);
}

/* Are the blobs those that the kind has, and all enumerations in range? */
static bool
is_good(const FrameTaken *taken)
{
	const Frame *frame = &taken->frame;
	const uint32_t *lengths = frame->blob_lengths;

	for (int i = 0; i < FRAME_NBLOBS; i++)
		if (!is_blob(taken, i, blob_kinds[frame->kind][i]))
			return false;
	switch (frame->kind)
	{
		case FRAME_OPEN:
			return (lengths[1] > 0) == (lengths[2] > 0) &&
				frame->u.open.session_timeout_ms > 0 &&
				frame->u.open.backend_pid > 1;
		case FRAME_REQUEST:
			return is_request_good(taken);
		case FRAME_STATUS:
			return is_among(frame->u.status.state, ZK_CLIENT_LOST) &&
				is_among(frame->u.status.loss, ZK_LOSS_LAST) &&
				frame->u.status.session_timeout_ms >= 0 &&
				frame->u.status.nrefused >= 0 &&
				frame->u.status.nput_off >= 0;
		case FRAME_REPLY:
			return is_among(frame->u.reply.result, ZK_RESULT_LAST) &&
				frame->u.reply.nchildren >= 0 &&
				frame_count_texts(taken, 2) == frame->u.reply.nchildren &&
				(frame->id != 0 ||
				 (frame->u.reply.result == ZK_OK && lengths[0] > 0 &&
				  strchr(taken->blobs[0], '/') != NULL && lengths[2] > 0));
		case FRAME_WATCH:
			return is_among(frame->u.watch_news, ZK_WATCH_LOOK_AGAIN);
		case FRAME_KEEP:
			return strchr(taken->blobs[0], '/') != NULL &&
				frame->u.keep.slot < KEEP_SLOTS &&
				frame->u.keep.generation > 0 &&
				frame->u.keep.generation < KEEP_GENERATIONS;
	}
	return true;
}

static bool
is_request_good(const FrameTaken *taken)
{
	const FrameRequest *request = &taken->frame.u.request;
	int32_t		kind = request->kind;

	return is_among(kind, REQUEST_LAST_OF_BACKEND) &&
		is_among(request->node_kind, ZK_NODE_LAST) &&
		(taken->frame.id != 0 || REQUEST_MAY_BE_SILENT(kind)) &&
		(taken->frame.id == 0 || kind != REQUEST_LEAVE) &&
		(!request->is_awaited || kind == REQUEST_LEAVE) &&
		(!request->is_watched || kind == REQUEST_LIST || kind == REQUEST_GET) &&
		(taken->blobs[1] != NULL) ==
		(kind == REQUEST_MOVE || kind == REQUEST_CREATE_GUARDED) &&
		(taken->blobs[3] == NULL ||
		 (kind == REQUEST_MOVE && frame_count_texts(taken, 3) == 2)) &&
		(kind != REQUEST_LEAVE || is_blob(taken, 2, 'T'));
}

static bool
is_among(int32_t value, int32_t last)
{
	return value >= 0 && value <= last;
}

/* ---------------------------------------------------------------------
 * Interrupts
 * ---------------------------------------------------------------------
 */

void
interrupt_want(SharedPage *page)
{
	uint32_t	off = INTERRUPT_OFF;

	atomic_compare_exchange_strong(&page->loss_interrupt, &off,
								   INTERRUPT_WANTED);
}

bool
interrupt_refuse(SharedPage *page)
{
	uint32_t	wanted = INTERRUPT_WANTED;
	int64_t		deadline;

	if (atomic_load(&page->loss_interrupt) == INTERRUPT_OFF ||
		atomic_compare_exchange_strong(&page->loss_interrupt, &wanted,
									   INTERRUPT_OFF))
		return true;
	deadline = protocol_now() + INTERRUPT_WAIT_MS;
	while (atomic_load(&page->loss_interrupt) == INTERRUPT_UNDER_WAY &&
		   protocol_now() < deadline)
		sched_yield();
	return atomic_exchange(&page->loss_interrupt, INTERRUPT_OFF) !=
		INTERRUPT_UNDER_WAY;
}

void
interrupt_send(SharedPage *page, pid_t backend)
{
	uint32_t	wanted = INTERRUPT_WANTED;
	uint32_t	under_way = INTERRUPT_UNDER_WAY;

	if (!atomic_compare_exchange_strong(&page->loss_interrupt, &wanted,
										INTERRUPT_UNDER_WAY))
		return;
	atomic_fetch_add(&page->ninterrupts, 1);
	kill(backend, SIGINT);
	atomic_compare_exchange_strong(&page->loss_interrupt, &under_way,
								   INTERRUPT_SENT);
}

/* ---------------------------------------------------------------------
 * Use
 * ---------------------------------------------------------------------
 */

bool
use_begin(SharedPage *page)
{
	uint64_t	word = atomic_load(&page->use);

	if (word == USE_OVER || word % 2 == 1)
		return word != USE_OVER;
	return atomic_compare_exchange_strong(&page->use, &word, word + 1);
}

void
use_end(SharedPage *page)
{
	if (use_is_begun(page))
		atomic_fetch_add(&page->use, 1);
}

bool
use_is_begun(const SharedPage *page)
{
	uint64_t	word = atomic_load(&page->use);

	return word != USE_OVER && word % 2 == 1;
}

bool
use_finish(SharedPage *page, uint64_t word)
{
	return word % 2 == 0 &&
		atomic_compare_exchange_strong(&page->use, &word, USE_OVER);
}
