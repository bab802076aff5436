/*-------------------------------------------------------------------------
 *
 * client_private.h
 *	  The client and its requests, for the modules of the family client_*.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CLIENT_PRIVATE_H
#define ZKLOCK_CLIENT_PRIVATE_H

#include "channel.h"
#include "client.h"

/* A request, until its caller frees it. */
struct ZkRequest
{
	uint64_t	id;				/* its slot in the low bits */
	ZkClient   *client;
	RequestKind kind;
	bool		done;			/* reply is valid */
	ZkReply		reply;
	char	   *texts;			/* what its pointers point to, one block */
	char	   *path;			/* CREATE: what is to be made */
};

/* A client. */
struct ZkClient
{
	ZkChannel	channel;
	char	   *program;		/* its path */
	FrameBuffer opening;		/* the frame that opened the session, to end
								 * it with should its program die */
	ZkClientStatus status;		/* as reported last */
	SessionTicket ticket;		/* valid if status.was_connected */
	char		last_error[512];
	int64_t		watched_at;		/* when zklock_channel_watch() was called for
								 * it */
	uint64_t	nframes;		/* taken in, ever */
	uint64_t	nrequests;		/* sent, ever; the page has how many are over */
	uint64_t	nwithdrawn;		/* the same */
	int			many_depth;		/* of zklock_client_begin_many() */
	bool		is_flush_due;	/* at the end of that */
	uint64_t	watch_id;		/* request of the current watch; 0: none */
	bool		is_watch_used;	/* its event was here */
	ZkWatchNews watch_news;		/* of it */

	/*
	 * Live requests by slot; a request's id is its generation in the high
	 * bits and its slot in the low ones, so that a stale id finds nothing.
	 */
	ZkRequest **slots;
	uint64_t	nslots;
	uint64_t	next_slot;		/* where to look for a free one first */
	uint64_t	generation;
};
#define SLOT_BITS 16
#define SLOT_MASK (((uint64_t) 1 << SLOT_BITS) - 1)

/* ---- client.c ---- */

/* Take in what the shared page says is there. */
extern void client_look(ZkClient *client);

/* If the channel is over and the session was not, it is now. */
extern void client_note_end(ZkClient *client);

/* From now on no interrupt of that kind comes. */
extern void client_refuse_interrupt(ZkClient *client,
									_Atomic uint32_t *interrupt);

/* ---- client_request.c ---- */

/* The live request of that number, or NULL. */
extern ZkRequest *client_find_request(ZkClient *client, uint64_t id);

extern void client_free_request(ZkRequest *request);

/*
 * Send a frame of its own, without content.  Without memory the session is
 * given up: what is withdrawn and not undone would block others for ever.
 */
extern void client_put_note(ZkClient *client, FrameKind kind, uint64_t id);

/* The same for any frame. */
extern void client_put_frame(ZkClient *client, const Frame *frame,
							 const FrameBlob blobs[FRAME_NBLOBS]);

extern void client_flush_unless_many(ZkClient *client);

#endif							/* ZKLOCK_CLIENT_PRIVATE_H */
