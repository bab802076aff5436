/*-------------------------------------------------------------------------
 *
 * servers.c
 *	  The list of ZooKeeper servers: reading the connect string, and turning
 *	  host names into numeric addresses.
 *
 * What passes here is read by the ZooKeeper client library without another
 * look, and its own reader takes ports for octal and half a number for a
 * whole one: so anything unusual is refused.  Only servers_resolve() may
 * block.  All functions may be called from any thread.
 *
 *-------------------------------------------------------------------------
 */
#include "servers.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

/* Most of a piece that is quoted in a reason, in bytes. */
#define QUOTE_MAX 80

/* Two arguments for "%.*s": the piece, clipped. */
#define QUOTE(piece) quoted_length(piece), (piece).start

/* What follows the last reason that found room among several. */
#define MORE_REASONS "; and more"

/* A part of the text; not terminated. */
typedef struct Piece
{
	const char *start;
	size_t		length;
} Piece;

/* Where to say why a list is refused; the caller's memory. */
typedef struct Refusal
{
	char	   *why;
	size_t		why_size;
} Refusal;

/* The addresses found so far, each "address:port", no two alike. */
typedef struct AddressSet
{
	int			naddresses;
	char		addresses[SERVERS_ADDRESSES_MAX][SERVERS_ADDRESS_SIZE];
} AddressSet;

static bool read_chroot(Piece text, ServerList *list, const Refusal *refusal);
static bool read_servers(Piece text, ServerList *list,
						 const Refusal *refusal);
static bool read_server(Piece text, Server *server, const Refusal *refusal);
static bool read_bracketed(Piece text, Server *server, Piece *rest,
						   const Refusal *refusal);
static bool read_host(Piece text, Server *server, Piece *rest,
					  const Refusal *refusal);
static bool read_port(Piece text, Piece rest, Server *server,
					  const Refusal *refusal);
static bool is_host_character(char c);
static bool ends_in_number(const char *host);
static bool is_numeric(const char *host);

static void look_up(const Server *server, int limit, AddressSet *set,
					ServerAddresses *result);
static bool format_address(char text[SERVERS_ADDRESS_SIZE],
						   const struct sockaddr *address, int port);
static bool contains(const AddressSet *set, const char *address);
static void write_connect_string(const AddressSet *set, char *out,
								 size_t out_size);
static void add_reason(char *reasons, size_t size, const char *host,
					   const char *reason, const char *cause);

static Piece trim(Piece piece);
static bool is_blank(char c);
static int	quoted_length(Piece piece);
static bool refuse(const Refusal *refusal, const char *format,...)
			__attribute__((format(printf, 2, 3)));

bool
servers_parse(const char *text, ServerList *list, char *why, size_t why_size)
{
	Refusal		refusal = {why, why_size};
	Piece		servers = {text, strcspn(text, "/")};
	Piece		chroot = {text + servers.length, strlen(text + servers.length)};

	if (why_size > 0)
		why[0] = '\0';

	return read_servers(servers, list, &refusal) &&
		read_chroot(chroot, list, &refusal);
}

bool
servers_all_numeric(const ServerList *list)
{
	for (int i = 0; i < list->nservers; i++)
	{
		if (!is_numeric(list->servers[i].host))
			return false;
	}
	return true;
}

bool
servers_resolve(const ServerList *list, ServerAddresses *result)
{
	AddressSet	set;

	set.naddresses = 0;
	result->connect_string[0] = '\0';
	result->error[0] = '\0';
	result->warning[0] = '\0';

	for (int i = 0; i < list->nservers; i++)
	{
		/* Keep a place for each of the servers that follow. */
		int			nfollowing = list->nservers - i - 1;

		look_up(&list->servers[i], SERVERS_ADDRESSES_MAX - nfollowing, &set,
				result);
	}

	if (set.naddresses == 0)
	{
		memcpy(result->error, result->warning, sizeof(result->error));
		result->warning[0] = '\0';
		return false;
	}

	write_connect_string(&set, result->connect_string,
						 sizeof(result->connect_string));
	return true;
}

/*
 * Read what follows the servers: nothing, or a path.  A path with a comma is
 * refused: it is a list that names its path after each server, the rest of
 * which would silently become part of the root.
 */
static bool
read_chroot(Piece text, ServerList *list, const Refusal *refusal)
{
	Piece		chroot = trim(text);

	if (memchr(chroot.start, ',', chroot.length) != NULL)
		return refuse(refusal,
					  "The path \"%.*s\" contains a comma; a path stands once, behind the last server",
					  QUOTE(chroot));
	if (chroot.length > SERVERS_CHROOT_MAX)
		return refuse(refusal,
					  "The path that starts with \"%.*s\" is longer than %d bytes",
					  QUOTE(chroot), SERVERS_CHROOT_MAX);

	if (chroot.length == 1)
		chroot.length = 0;		/* "/" is no chroot */
	memcpy(list->chroot, chroot.start, chroot.length);
	list->chroot[chroot.length] = '\0';
	return true;
}

/* Read the servers, which commas separate. */
static bool
read_servers(Piece text, ServerList *list, const Refusal *refusal)
{
	const char *end = text.start + text.length;
	const char *start = text.start;

	list->nservers = 0;
	if (trim(text).length == 0)
		return refuse(refusal, "The list names no server");

	for (;;)
	{
		const char *comma = memchr(start, ',', end - start);
		Piece		server = {start, (comma ? comma : end) - start};

		if (list->nservers == SERVERS_MAX)
			return refuse(refusal, "The list names more than %d servers",
						  SERVERS_MAX);

		server = trim(server);
		if (server.length == 0)
			return refuse(refusal, "Server %d of the list is empty",
						  list->nservers + 1);
		if (!read_server(server, &list->servers[list->nservers], refusal))
			return false;
		list->nservers++;

		if (comma == NULL)
			return true;
		start = comma + 1;
	}
}

/* Read one server, without blanks around it and not empty. */
static bool
read_server(Piece text, Server *server, const Refusal *refusal)
{
	Piece		rest = {text.start + text.length, 0};
	bool		ok;

	if (text.start[0] == '[')
		ok = read_bracketed(text, server, &rest, refusal);
	else
		ok = read_host(text, server, &rest, refusal);

	return ok && read_port(text, rest, server, refusal);
}

/*
 * Read an IPv6 address in brackets into server->host; *rest is what stands
 * behind them.
 */
static bool
read_bracketed(Piece text, Server *server, Piece *rest,
			   const Refusal *refusal)
{
	const char *close = memchr(text.start, ']', text.length);
	Piece		inner = {text.start + 1, 0};
	struct in6_addr address;

	if (close == NULL)
		return refuse(refusal, "\"%.*s\" lacks the closing bracket",
					  QUOTE(text));

	inner.length = close - inner.start;
	rest->start = close + 1;
	rest->length = text.length - inner.length - 2;

	if (memchr(inner.start, '%', inner.length) != NULL)
		return refuse(refusal,
					  "IPv6 address \"%.*s\" has a zone, which is not supported",
					  QUOTE(inner));
	if (inner.length >= INET6_ADDRSTRLEN)
		return refuse(refusal, "\"%.*s\" is not an IPv6 address",
					  QUOTE(inner));

	memcpy(server->host, inner.start, inner.length);
	server->host[inner.length] = '\0';

	if (inet_pton(AF_INET6, server->host, &address) != 1)
		return refuse(refusal, "\"%.*s\" is not an IPv6 address",
					  QUOTE(inner));
	if (IN6_IS_ADDR_LINKLOCAL(&address))
		return refuse(refusal,
					  "IPv6 address \"%.*s\" is link-local, which is not supported",
					  QUOTE(inner));
	return true;
}

/*
 * Read a host name or an IPv4 address into server->host; *rest is what stands
 * behind it.
 */
static bool
read_host(Piece text, Server *server, Piece *rest, const Refusal *refusal)
{
	const char *colon = memchr(text.start, ':', text.length);
	Piece		host = text;
	struct in_addr address;

	if (colon != NULL)
		host.length = colon - text.start;
	rest->start = host.start + host.length;
	rest->length = text.length - host.length;

	if (colon != NULL && memchr(colon + 1, ':', rest->length - 1) != NULL)
		return refuse(refusal,
					  "\"%.*s\" has more than one colon; an IPv6 address must stand in brackets",
					  QUOTE(text));
	if (host.length == 0)
		return refuse(refusal, "\"%.*s\" lacks a host", QUOTE(text));
	if (host.length > SERVERS_HOST_MAX)
		return refuse(refusal,
					  "The host name that starts with \"%.*s\" is longer than %d bytes",
					  QUOTE(host), SERVERS_HOST_MAX);

	for (size_t i = 0; i < host.length; i++)
	{
		if (!is_host_character(host.start[i]))
			return refuse(refusal,
						  "Host name \"%.*s\" contains a character other than ASCII letters, digits, hyphen, underscore and dot",
						  QUOTE(host));
	}

	memcpy(server->host, host.start, host.length);
	server->host[host.length] = '\0';

	/* "10.1", "010.0.0.1" and "300.0.0.1" are neither names nor addresses. */
	if (ends_in_number(server->host) &&
		inet_pton(AF_INET, server->host, &address) != 1)
		return refuse(refusal, "\"%.*s\" is not an IPv4 address",
					  QUOTE(host));
	return true;
}

/*
 * Read `rest`, the end of `text` behind the host: nothing, or a colon and a
 * decimal number.
 */
static bool
read_port(Piece text, Piece rest, Server *server, const Refusal *refusal)
{
	Piece		port = {rest.start + 1, rest.length - 1};
	int			value = 0;

	if (rest.length == 0)
	{
		server->port = SERVERS_DEFAULT_PORT;
		return true;
	}
	if (rest.start[0] != ':')
		return refuse(refusal,
					  "\"%.*s\" has something other than a port behind the bracket",
					  QUOTE(text));
	if (port.length == 0)
		return refuse(refusal, "\"%.*s\" lacks a port behind the colon",
					  QUOTE(text));

	for (size_t i = 0; i < port.length && value <= 65535; i++)
	{
		char		c = port.start[i];

		/* A leading zero is octal to some readers: refused, like 0. */
		if (c < '0' || c > '9' || (i == 0 && c == '0'))
		{
			value = 0;
			break;
		}
		value = value * 10 + (c - '0');
	}

	if (value < 1 || value > 65535)
		return refuse(refusal,
					  "Port \"%.*s\" is not a decimal number from 1 to 65535 without leading zeros",
					  QUOTE(port));
	server->port = value;
	return true;
}

/*
 * The same in every locale; the underscore is common in container networks.
 */
static bool
is_host_character(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
		(c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
}

/*
 * Is the last label all digits?  No top-level domain is (RFC 3696), so it can
 * only be meant for an IPv4 address.
 */
static bool
ends_in_number(const char *host)
{
	const char *dot = strrchr(host, '.');
	const char *label = dot ? dot + 1 : host;

	return label[0] != '\0' && label[strspn(label, "0123456789")] == '\0';
}

static bool
is_numeric(const char *host)
{
	struct in_addr v4;
	struct in6_addr v6;

	return inet_pton(AF_INET, host, &v4) == 1 ||
		inet_pton(AF_INET6, host, &v6) == 1;
}

/*
 * Add the addresses of one server to the set, until that has `limit` of them.
 * Whatever is left out is noted in result->warning.
 */
static void
look_up(const Server *server, int limit, AddressSet *set,
		ServerAddresses *result)
{
	struct addrinfo hints;
	struct addrinfo *found;
	bool		is_usable = false;
	int			rc;

	/*
	 * No AI_ADDRCONFIG: it hides loopback addresses from machines without a
	 * network, and an address that cannot be reached is skipped at once.
	 */
	memset(&hints, 0, sizeof(hints));
	hints.ai_family = AF_UNSPEC;
	hints.ai_socktype = SOCK_STREAM;
	hints.ai_flags = is_numeric(server->host) ? AI_NUMERICHOST : 0;

	rc = getaddrinfo(server->host, NULL, &hints, &found);
	if (rc != 0)
	{
		add_reason(result->warning, sizeof(result->warning), server->host,
				   "could not be resolved: ", gai_strerror(rc));
		return;
	}

	for (struct addrinfo *ai = found; ai != NULL; ai = ai->ai_next)
	{
		char		text[SERVERS_ADDRESS_SIZE];

		if (!format_address(text, ai->ai_addr, server->port))
			continue;
		is_usable = true;
		if (contains(set, text))
			continue;
		if (set->naddresses >= limit)
		{
			add_reason(result->warning, sizeof(result->warning), server->host,
					   "has more addresses than can be used", "");
			break;
		}
		memcpy(set->addresses[set->naddresses++], text, sizeof(text));
	}
	freeaddrinfo(found);

	if (!is_usable)
		add_reason(result->warning, sizeof(result->warning), server->host,
				   "has no address but link-local ones", "");
}

/*
 * Write "address:port".  false if the address is of no use to the client
 * library: link-local, or neither IPv4 nor IPv6.
 */
static bool
format_address(char text[SERVERS_ADDRESS_SIZE],
			   const struct sockaddr *address, int port)
{
	char		host[INET6_ADDRSTRLEN];
	const void *bytes;

	if (address->sa_family == AF_INET)
		bytes = &((const struct sockaddr_in *) address)->sin_addr;
	else if (address->sa_family == AF_INET6)
	{
		bytes = &((const struct sockaddr_in6 *) address)->sin6_addr;
		if (IN6_IS_ADDR_LINKLOCAL(bytes))
			return false;
	}
	else
		return false;

	if (inet_ntop(address->sa_family, bytes, host, sizeof(host)) == NULL)
		return false;
	snprintf(text, SERVERS_ADDRESS_SIZE, "%s:%d", host, port);
	return true;
}

static bool
contains(const AddressSet *set, const char *address)
{
	for (int i = 0; i < set->naddresses; i++)
	{
		if (strcmp(set->addresses[i], address) == 0)
			return true;
	}
	return false;
}

/*
 * Join the addresses of a set that is not empty, the first once more at the
 * end if their number is even.  Always fits: the largest set is odd.
 */
static void
write_connect_string(const AddressSet *set, char *out, size_t out_size)
{
	int			ntotal = set->naddresses | 1;
	size_t		used = 0;

	for (int i = 0; i < ntotal; i++)
		used += snprintf(out + used, out_size - used, "%s%s",
						 i > 0 ? "," : "",
						 set->addresses[i % set->naddresses]);
}

/*
 * Append what is wrong with a host, and the cause if there is more to say.
 * From the first one on that finds no room, only a hint that there are more.
 */
static void
add_reason(char *reasons, size_t size, const char *host, const char *reason,
		   const char *cause)
{
	size_t		used = strlen(reasons);
	size_t		room = size - used;
	size_t		more_length = strlen(MORE_REASONS);
	int			needed;

	if (used >= more_length &&
		strcmp(reasons + used - more_length, MORE_REASONS) == 0)
		return;

	needed = snprintf(reasons + used, room, "%s \"%s\" %s%s",
					  used > 0 ? "; host" : "Host", host, reason, cause);
	if (needed < 0 || (size_t) needed + more_length >= room)
		memcpy(reasons + used, MORE_REASONS, more_length + 1);
}

static Piece
trim(Piece piece)
{
	while (piece.length > 0 && is_blank(piece.start[0]))
	{
		piece.start++;
		piece.length--;
	}
	while (piece.length > 0 && is_blank(piece.start[piece.length - 1]))
		piece.length--;
	return piece;
}

static bool
is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/*
 * How much of a piece to quote.  A clipped one does not end in a byte above
 * 0x7F: it might be half a character, in whatever encoding the text is.
 */
static int
quoted_length(Piece piece)
{
	size_t		length = piece.length;

	if (length > QUOTE_MAX)
	{
		length = QUOTE_MAX;
		while (length > 0 && (unsigned char) piece.start[length - 1] > 0x7F)
			length--;
	}
	return (int) length;
}

/* Say why; always false, for the caller to return. */
static bool
refuse(const Refusal *refusal, const char *format,...)
{
	va_list		args;

	va_start(args, format);
	vsnprintf(refusal->why, refusal->why_size, format, args);
	va_end(args);
	return false;
}
