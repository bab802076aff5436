/*-------------------------------------------------------------------------
 *
 * channel.h
 *
 * libc only.  Nothing here raises; what waits has a bound and says so.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CHANNEL_H
#define ZKLOCK_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "protocol.h"

/*
 * Is it open, or why not?  This needs no table of moves: zklock_channel_break()
 * alone notes why, and what was known first counts.
 */
typedef enum ZkChannelState
{
	ZK_CHANNEL_OPEN,			/* frames come and go */
	ZK_CHANNEL_ENDED,			/* the program has ended */
	ZK_CHANNEL_STUCK,			/* it does not read what it is sent */
	ZK_CHANNEL_WRONG_VERSION,	/* it is of another installation */
	ZK_CHANNEL_GARBLED,			/* what it has sent is not valid */
	ZK_CHANNEL_NO_MEMORY		/* here */
} ZkChannelState;

/* Owned by its opener.  All zero is one that was never opened. */
typedef struct ZkChannel
{
	ZkChannelState state;		/* once it is neither OPEN nor ENDED, that is
								 * final */
	int			fd;				/* our end of the socket pair; valid while
								 * page is not NULL */
	SharedPage *page;			/* NULL: not opened, or closed */
	struct Child *child;		/* its program's entry, NULL: there was no
								 * room */
	pid_t		program;
	pid_t		owner;			/* the process that opened it; its children
								 * must not use it */
	FrameBuffer in;
	FrameBuffer out;
	uint64_t	nflushed;		/* of the page, as of the last receive */
} ZkChannel;

/*
 * Start the program.  On failure returns false with errno set and the channel
 * as it was.  The title, clipped, is what ps shows.
 *
 * While a program runs, this process has a handler for SIGCHLD, which reaps
 * this program and leaves all other children alone, so that no zombie stays
 * behind an idle backend; and it passes the death on as SIGINT if
 * loss_interrupt is wanted.
 */
extern bool zklock_channel_open(ZkChannel *channel, const char *program,
								const char *title,...)
			__attribute__((format(printf, 3, 4)));

/*
 * Send all that is in its buffer (frame_put()).  Waits for a program that is slow
 * to read; if it reads nothing at all for three seconds the channel is STUCK.
 */
extern void zklock_channel_flush(ZkChannel *channel);

/*
 * Read what the program has sent.  Unless it is forced, this reads only if the
 * page says that something was sent, or if the program is dead; otherwise it
 * makes no system call. false if the channel is open and nothing can have
 * come.
 */
extern bool zklock_channel_receive(ZkChannel *channel, bool is_forced);

/* May there be anything new since the last receive?  No system call. */
extern bool zklock_channel_has_news(const ZkChannel *channel);

/* Take the next complete frame that was received; false if there is none. */
extern bool zklock_channel_take(ZkChannel *channel, FrameTaken *taken);

/*
 * Break the connection: the program finds the end of its input, and that ends
 * its session.  Frees nothing.
 */
extern void zklock_channel_break(ZkChannel *channel, ZkChannelState state);

/*
 * Let the program end its session, wait for at most so long until it is over,
 * and free all that belongs to the channel.  ZK_CHANNEL_KILL: the program is
 * to go at once, without ending its session.  Result: what it has ended with,
 * as waitpid() says; 0 if it has not, or that is not known.
 */
#define ZK_CHANNEL_KILL (-1)
extern int	zklock_channel_close(ZkChannel *channel, int wait_ms);

/*
 * Keep what programs are to have of the environment, once: what a function of
 * some language puts there later is not for them.  For _PG_init().
 */
extern void zklock_channel_keep_environment(void);

/* Programs are to have that descriptor as PROTOCOL_SETTINGS_FD. */
extern void zklock_channel_hand_on(int fd);

/*
 * Install the handler of SIGCHLD again if somebody has removed it.  Without it
 * this process does not learn that a program has died.
 */
extern void zklock_channel_watch(void);

/* Kill the program, which leaves its session to the session timeout. */
extern void zklock_channel_kill(ZkChannel *channel);

#endif							/* ZKLOCK_CHANNEL_H */
