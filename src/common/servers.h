/*-------------------------------------------------------------------------
 *
 * servers.h
 *
 * The ZooKeeper client library is only ever given numeric addresses, an odd
 * number of them: it would otherwise call getaddrinfo() itself, stand still
 * meanwhile, lose healthy sessions in a DNS outage, and skip every second server
 * of an even list (ZOOKEEPER-1998, ZOOKEEPER-2466).
 *
 * libc only: neither PostgreSQL nor ZooKeeper.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SERVERS_H
#define ZKLOCK_SERVERS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

/* Most servers that a list may name, and most addresses that we use. */
#define SERVERS_MAX 32
#define SERVERS_ADDRESSES_MAX 63

/* Longest host name (RFC 1035) without the NUL. */
#define SERVERS_HOST_MAX 253

/* Longest path behind the list, without the NUL. */
#define SERVERS_CHROOT_MAX 256

/* Room for one address as text: IPv6, ':', port, and ',' or NUL. */
#define SERVERS_ADDRESS_SIZE 56

/* Room for all addresses. */
#define SERVERS_TEXT_SIZE (SERVERS_ADDRESSES_MAX * SERVERS_ADDRESS_SIZE)

#define SERVERS_DEFAULT_PORT 2181

/* Room for a reason, a sentence without a full stop. */
#define SERVERS_WHY_SIZE 256

typedef struct Server
{
	char		host[SERVERS_HOST_MAX + 1]; /* name or numeric address,
											 * without brackets */
	int			port;			/* 1 to 65535 */
} Server;

typedef struct ServerList
{
	int			nservers;		/* 1 to SERVERS_MAX when parsed */
	Server		servers[SERVERS_MAX];
	char		chroot[SERVERS_CHROOT_MAX + 1]; /* "" or "/path", not yet
												 * checked as a root */
} ServerList;

/* An address to connect to. */
typedef struct ServerAddress
{
	int			server;			/* its server's place in the list */
	struct sockaddr_storage address;
	socklen_t	length;
	char		text[SERVERS_ADDRESS_SIZE]; /* "address:port", IPv6 in
											 * brackets: as the library says
											 * where it is connected */
} ServerAddress;

/* What is known of a host.  All zero: nothing. */
typedef struct HostAddresses
{
	int			count;
	struct
	{
		int			family;		/* AF_INET or AF_INET6 */
		unsigned char bytes[16];	/* of the address */
	}			all[SERVERS_ADDRESSES_MAX]; /* no two of them are alike */
	bool		has_more;		/* than there is room for */
	char		complaint[SERVERS_WHY_SIZE];	/* the end of a sentence about it,
												 * or "" */
} HostAddresses;

/* Those of all servers of a list: no two of the addresses are alike. */
typedef struct ServerAddresses
{
	int			count;
	ServerAddress all[SERVERS_ADDRESSES_MAX];
	char		complaint[512]; /* names that were left out, or why there is
								 * no address at all; else "" */
} ServerAddresses;

/*
 * Read "host:port,host:port[/chroot]".  A port may be left out (2181); IPv6
 * addresses stand in brackets ("[::1]:2181", "[::1]"); link-local ones are
 * refused, for they mean nothing without an interface.  Ports are decimal.
 * Blanks around a server and behind the chroot are ignored; a chroot of "/"
 * is none.  On failure returns false and writes a sentence without a full
 * stop for a DETAIL into why; the list is then not to be used.
 */
extern bool servers_parse(const char *text, ServerList *list,
						  char why[SERVERS_WHY_SIZE]);

/*
 * Have they a server in common, by the texts of host and port, and the same
 * chroot?  Then they may be lists of one ensemble; no look-up is made.
 */
extern bool servers_overlap(const ServerList *one, const ServerList *other);

/*
 * Look a host up, with getaddrinfo(): may block for as long as DNS does, unless
 * it is a numeric address.  Without a usable address there is a complaint;
 * link-local addresses are left out.
 */
extern void servers_look_up(const char *host, HostAddresses *result);

/*
 * The addresses of a list, of whose servers that is known, each at its place.
 * false if there is not a single one; a server without an address is only left
 * out.  The complaint is a sentence without a full stop.  Each server that has
 * an address gets at least one into the result.
 */
extern bool servers_collect(const ServerList *list,
							const HostAddresses *const known[],
							ServerAddresses *result);

/* Has it an address of that text? */
extern bool servers_contain(const ServerAddresses *addresses, const char *text);

/* Are they the same, in whatever order? */
extern bool servers_are_same(const ServerAddresses *one,
							 const ServerAddresses *other);

/*
 * Write addresses, of which there are some, as zookeeper_init() takes them:
 * "a:port,b:port,...".  The first stands once more at the end if their number
 * is even; then the list is turned, to begin with that one, taken modulo their
 * number.  Result: how many there are.
 */
extern int	servers_write(const ServerAddresses *addresses, unsigned first,
						  char text[SERVERS_TEXT_SIZE]);

/*
 * Write "address:port" as in a ServerAddress.  false if the address is of no
 * use to the client library: link-local, or neither IPv4 nor IPv6.
 */
extern bool servers_format_address(char text[SERVERS_ADDRESS_SIZE],
								   const struct sockaddr *address, int port);

/* Is that host a numeric address, not a name? */
extern bool servers_is_numeric(const char *host);

#endif							/* ZKLOCK_SERVERS_H */
