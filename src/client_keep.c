/*-------------------------------------------------------------------------
 *
 * client_keep.c
 *	  Locks that a backend keeps after their release, as its client has them.
 *
 * A slot is a word of the shared page (keep_word.h).  The program is told of
 * a lock when it is granted; from then on it watches the queue, and the word
 * does the rest.
 *
 *-------------------------------------------------------------------------
 */
#include "client_private.h"

static KeepWord *word_of(ZkClient *client, const ZkKept *kept);
static void send_keep(ZkClient *client, const ZkKept *kept, const char *node,
					  const char *data);
static void free_slot(ZkClient *client, ZkKept *kept);

bool
zklock_client_begin_kept(ZkClient *client, ZkKept *kept, const char *node,
						 const char *data, int keep_ms)
{
	SharedPage *page = client->channel.page;
	int			slot = 0;

	while (slot < KEEP_SLOTS && client->keep_generations[slot] != 0)
		slot++;
	if (page == NULL || slot == KEEP_SLOTS ||
		client->status.state == ZK_CLIENT_LOST)
		return false;
	client->keep_generation = client->keep_generation % (KEEP_GENERATIONS - 1) + 1;
	kept->slot = slot;
	kept->generation = client->keep_generation;
	kept->keep_ms = keep_ms;

	/* the word goes first: the program looks at it as soon as it is told */
	client->keep_generations[slot] = kept->generation;
	keep_word_begin(&page->keeps[slot], kept->generation, zklock_client_now());
	send_keep(client, kept, node, data);
	return true;
}

bool
zklock_client_take_kept(ZkClient *client, ZkKept *kept)
{
	SharedPage *page = client->channel.page;
	bool		was_shown;

	if (page == NULL ||
		!keep_word_take(word_of(client, kept), kept->generation, &was_shown))
	{
		kept->was_wanted = page != NULL &&
			keep_word_state(word_of(client, kept), kept->generation) ==
			KEEP_GIVEN_UP;
		free_slot(client, kept);
		return false;
	}
	if (was_shown)
		send_keep(client, kept, NULL, NULL);
	return true;
}

bool
zklock_client_keep(ZkClient *client, ZkKept *kept, int keep_ms)
{
	bool		is_told;

	if (client->channel.page == NULL ||
		!keep_word_put(word_of(client, kept), kept->generation,
					   zklock_client_now(), &is_told))
	{
		free_slot(client, kept);
		return false;
	}
	if (is_told || kept->keep_ms != keep_ms)
	{
		kept->keep_ms = keep_ms;
		send_keep(client, kept, NULL, NULL);
	}
	return true;
}

bool
zklock_client_is_kept(const ZkClient *client, const ZkKept *kept)
{
	const SharedPage *page = client->channel.page;
	KeepState	state = page == NULL ? KEEP_FREE :
		keep_word_state(&page->keeps[kept->slot], kept->generation);

	return state == KEEP_KEPT || state == KEEP_SHOWN;
}

void
zklock_client_end_kept(ZkClient *client, ZkKept *kept)
{
	kept->keep_ms = 0;
	if (client->channel.page != NULL)
		send_keep(client, kept, NULL, NULL);
	free_slot(client, kept);
}

static KeepWord *
word_of(ZkClient *client, const ZkKept *kept)
{
	return &client->channel.page->keeps[kept->slot];
}

/*
 * Tell the program.  Without memory the session is given up, as by
 * client_put_note(): the lock would be kept for ever.
 */
static void
send_keep(ZkClient *client, const ZkKept *kept, const char *node,
		  const char *data)
{
	Frame		frame = {.kind = FRAME_KEEP};
	const FrameBlob blobs[FRAME_NBLOBS] = {
		frame_text(node), frame_text(data)
	};

	frame.u.keep.slot = (uint32_t) kept->slot;
	frame.u.keep.generation = kept->generation;
	frame.u.keep.keep_ms = kept->keep_ms;
	client_put_frame(client, &frame, blobs);
	client_flush_unless_many(client);
}

static void
free_slot(ZkClient *client, ZkKept *kept)
{
	client->keep_generations[kept->slot] = 0;
	if (client->channel.page != NULL)
		keep_word_end(word_of(client, kept));
}
