/*-------------------------------------------------------------------------
 *
 * servers.c
 *	  Reads lists of servers, and looks up their addresses.
 *
 * The ZooKeeper client library does not check what passes here.  Its own
 * parser reads ports as octal numbers, and stops at the first character that
 * is no digit.  So anything unusual is refused.  Only servers_look_up() may
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
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Most of a text that is quoted in a reason, in bytes. */
#define QUOTE_MAX 80

/* Two arguments for "%.*s": the text, clipped. */
#define QUOTE(text) quoted_length(text), (text)

#define BLANKS " \t\n\r"

/*
 * The same in every locale; the underscore is common in container networks.
 */
#define HOST_CHARACTERS \
	"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."

#define DIGITS "0123456789"

/* Room for a server as text; what is longer cannot be one. */
#define SERVER_TEXT_SIZE 512

/* What is appended when there is no room for more reasons. */
#define MORE_REASONS "; and more"

static bool read_chroot(const char *text, ServerList *list, char *why);
static bool read_server(const char *text, Server *server, char *why);
static bool read_port(const char *text, const char *rest, Server *server,
					  char *why);
static bool check_address(const char *host, char *why);
static bool check_name(const char *host, char *why);

static void note_address(const struct sockaddr *address, HostAddresses *result);
static void add_server(const Server *server, int place, int limit,
					   const HostAddresses *known, ServerAddresses *result);
static void add_reason(ServerAddresses *result, const char *host,
					   const char *reason);

static void copy_trimmed(char *copy, size_t size, const char *text,
						 size_t length);
static int	quoted_length(const char *text);
static bool refuse_list(char *why, const char *format,...)
			__attribute__((format(printf, 2, 3)));

bool
servers_parse(const char *text, ServerList *list, char why[SERVERS_WHY_SIZE])
{
	const char *start = text;
	char		first = text[strspn(text, BLANKS)];

	why[0] = '\0';
	if (first == '\0' || first == '/')
		return refuse_list(why, "The list names no server");

	for (list->nservers = 0;; start++)
	{
		size_t		length = strcspn(start, ",/");
		char		server[SERVER_TEXT_SIZE];

		if (list->nservers == SERVERS_MAX)
			return refuse_list(why, "The list names more than %d servers",
							   SERVERS_MAX);
		copy_trimmed(server, sizeof(server), start, length);
		if (server[0] == '\0')
			return refuse_list(why, "Server %d of the list is empty",
							   list->nservers + 1);
		if (!read_server(server, &list->servers[list->nservers], why))
			return false;
		list->nservers++;
		start += length;
		if (*start != ',')
			return read_chroot(start, list, why);
	}
}

bool
servers_overlap(const ServerList *one, const ServerList *other)
{
	if (strcmp(one->chroot, other->chroot) != 0)
		return false;
	for (int i = 0; i < one->nservers; i++)
		for (int k = 0; k < other->nservers; k++)
			if (one->servers[i].port == other->servers[k].port &&
				strcasecmp(one->servers[i].host, other->servers[k].host) == 0)
				return true;
	return false;
}

/*
 * No AI_ADDRCONFIG: it hides loopback addresses from machines without a
 * network, and an address that cannot be reached is skipped at once.
 */
void
servers_look_up(const char *host, HostAddresses *result)
{
	const struct addrinfo hints = {
		.ai_family = AF_UNSPEC,
		.ai_socktype = SOCK_STREAM,
		.ai_flags = servers_is_numeric(host) ? AI_NUMERICHOST : 0
	};
	struct addrinfo *found;
	int			rc = getaddrinfo(host, NULL, &hints, &found);

	memset(result, 0, sizeof(*result));
	if (rc != 0)
	{
		snprintf(result->complaint, sizeof(result->complaint),
				 "could not be resolved: %s", gai_strerror(rc));
		return;
	}
	for (struct addrinfo *ai = found; ai != NULL; ai = ai->ai_next)
		note_address(ai->ai_addr, result);
	freeaddrinfo(found);
	if (result->count == 0)
		snprintf(result->complaint, sizeof(result->complaint),
				 "has no address but link-local ones");
}

bool
servers_collect(const ServerList *list, const HostAddresses *const known[],
				ServerAddresses *result)
{
	result->count = 0;
	result->complaint[0] = '\0';

	/* keep a place for each of the servers that follow */
	for (int i = 0; i < list->nservers; i++)
		add_server(&list->servers[i], i,
				   SERVERS_ADDRESSES_MAX - (list->nservers - i - 1), known[i],
				   result);
	return result->count > 0;
}

bool
servers_contain(const ServerAddresses *addresses, const char *text)
{
	for (int i = 0; i < addresses->count; i++)
		if (strcmp(addresses->all[i].text, text) == 0)
			return true;
	return false;
}

/* No two of either are alike. */
bool
servers_are_same(const ServerAddresses *one, const ServerAddresses *other)
{
	for (int i = 0; i < one->count; i++)
		if (!servers_contain(other, one->all[i].text))
			return false;
	return one->count == other->count;
}

/* It always fits: the most that there can be is an odd number. */
int
servers_write(const ServerAddresses *addresses, unsigned first,
			  char text[SERVERS_TEXT_SIZE])
{
	unsigned	count = (unsigned) addresses->count;
	unsigned	nwritten = count | 1;

	for (unsigned i = 0; i < nwritten; i++)
	{
		const char *address =
			addresses->all[(first % nwritten + i) % nwritten % count].text;

		/* the library reads no brackets, though it writes some */
		for (; *address != '\0'; address++)
			if (*address != '[' && *address != ']')
				*text++ = *address;
		*text++ = ',';
	}
	text[-1] = '\0';
	return (int) nwritten;
}

/*
 * Read what follows the servers: nothing, or a path.  A path with a comma is
 * refused: it is a list that names its path after each server, the rest of
 * which would silently become part of the root.
 */
static bool
read_chroot(const char *text, ServerList *list, char *why)
{
	char		chroot[SERVERS_CHROOT_MAX + 2]; /* shows what is too long */

	copy_trimmed(chroot, sizeof(chroot), text, strlen(text));
	if (strchr(text, ',') != NULL)
		return refuse_list(why,
						   "The path \"%.*s\" contains a comma; a path stands once, behind the last server",
						   QUOTE(chroot));
	if (strlen(chroot) > SERVERS_CHROOT_MAX)
		return refuse_list(why,
						   "The path that starts with \"%.*s\" is longer than %d bytes",
						   QUOTE(chroot), SERVERS_CHROOT_MAX);
	memcpy(list->chroot, chroot, sizeof(list->chroot));
	if (strcmp(chroot, "/") == 0)
		list->chroot[0] = '\0';
	return true;
}

/* Read one server, without blanks around it and not empty. */
static bool
read_server(const char *text, Server *server, char *why)
{
	bool		is_bracketed = text[0] == '[';
	const char *host = is_bracketed ? text + 1 : text;
	size_t		length = strcspn(host, is_bracketed ? "]" : ":");
	const char *rest = host + length;

	if (is_bracketed && *rest++ != ']')
		return refuse_list(why, "\"%.*s\" lacks the closing bracket",
						   QUOTE(text));
	if (!is_bracketed && strchr(rest, ':') != strrchr(rest, ':'))
		return refuse_list(why,
						   "\"%.*s\" has more than one colon; an IPv6 address must stand in brackets",
						   QUOTE(text));
	if (!is_bracketed && length == 0)
		return refuse_list(why, "\"%.*s\" lacks a host", QUOTE(text));
	if (is_bracketed && length > SERVERS_HOST_MAX)
		return refuse_list(why, "\"%.*s\" is not an IPv6 address",
						   QUOTE(host));
	if (length > SERVERS_HOST_MAX)
		return refuse_list(why,
						   "The host name that starts with \"%.*s\" is longer than %d bytes",
						   QUOTE(host), SERVERS_HOST_MAX);
	memcpy(server->host, host, length);
	server->host[length] = '\0';
	if (is_bracketed && !check_address(server->host, why))
		return false;
	if (!is_bracketed && !check_name(server->host, why))
		return false;
	return read_port(text, rest, server, why);
}

/* Is it an IPv6 address? */
static bool
check_address(const char *host, char *why)
{
	struct in6_addr address;

	if (strchr(host, '%') != NULL)
		return refuse_list(why,
						   "IPv6 address \"%.*s\" has a zone, which is not supported",
						   QUOTE(host));
	if (inet_pton(AF_INET6, host, &address) != 1)
		return refuse_list(why, "\"%.*s\" is not an IPv6 address",
						   QUOTE(host));
	if (IN6_IS_ADDR_LINKLOCAL(&address))
		return refuse_list(why,
						   "IPv6 address \"%.*s\" is link-local, which is not supported",
						   QUOTE(host));
	return true;
}

/* Is it a host name or an IPv4 address? */
static bool
check_name(const char *host, char *why)
{
	struct in_addr address;
	const char *dot = strrchr(host, '.');
	const char *label = dot != NULL ? dot + 1 : host;

	if (host[strspn(host, HOST_CHARACTERS)] != '\0')
		return refuse_list(why,
						   "Host name \"%.*s\" contains a character other than ASCII letters, digits, hyphen, underscore and dot",
						   QUOTE(host));

	/*
	 * "10.1", "010.0.0.1" and "300.0.0.1" are neither names nor addresses: no
	 * top-level domain is all digits (RFC 3696).
	 */
	if (label[0] != '\0' && label[strspn(label, DIGITS)] == '\0' &&
		inet_pton(AF_INET, host, &address) != 1)
		return refuse_list(why, "\"%.*s\" is not an IPv4 address",
						   QUOTE(host));
	return true;
}

/*
 * Read `rest`, the end of `text` behind the host: nothing, or a colon and a
 * decimal number.  A leading zero is octal to some readers: refused.
 */
static bool
read_port(const char *text, const char *rest, Server *server,
		  char *why)
{
	const char *port = rest + 1;

	server->port = SERVERS_DEFAULT_PORT;
	if (rest[0] == '\0')
		return true;
	if (rest[0] != ':')
		return refuse_list(why,
						   "\"%.*s\" has something other than a port behind the bracket",
						   QUOTE(text));
	if (port[0] == '\0')
		return refuse_list(why, "\"%.*s\" lacks a port behind the colon",
						   QUOTE(text));
	server->port = 0;
	if (strspn(port, DIGITS) == strlen(port) && strlen(port) <= 5)
		server->port = atoi(port);
	if (port[0] == '0' || server->port < 1 || server->port > 65535)
		return refuse_list(why,
						   "Port \"%.*s\" is not a decimal number from 1 to 65535 without leading zeros",
						   QUOTE(port));
	return true;
}

bool
servers_is_numeric(const char *host)
{
	struct in_addr v4;
	struct in6_addr v6;

	return inet_pton(AF_INET, host, &v4) == 1 ||
		inet_pton(AF_INET6, host, &v6) == 1;
}

/* Keep an address of a host that is looked up, if it is of use. */
static void
note_address(const struct sockaddr *address, HostAddresses *result)
{
	char		text[SERVERS_ADDRESS_SIZE];
	unsigned char bytes[sizeof(result->all[0].bytes)] = {0};

	if (!servers_format_address(text, address, 0))
		return;
	if (address->sa_family == AF_INET)
		memcpy(bytes, &((const struct sockaddr_in *) address)->sin_addr,
			   sizeof(struct in_addr));
	else
		memcpy(bytes, &((const struct sockaddr_in6 *) address)->sin6_addr,
			   sizeof(struct in6_addr));
	for (int i = 0; i < result->count; i++)
		if (result->all[i].family == address->sa_family &&
			memcmp(result->all[i].bytes, bytes, sizeof(bytes)) == 0)
			return;
	if (result->count == SERVERS_ADDRESSES_MAX)
	{
		result->has_more = true;
		return;
	}
	result->all[result->count].family = address->sa_family;
	memcpy(result->all[result->count++].bytes, bytes, sizeof(bytes));
}

/*
 * Add what is known of the server at that place, until there are `limit` of
 * all.  Whatever is left out is noted in the complaint.
 */
static void
add_server(const Server *server, int place, int limit,
		   const HostAddresses *known, ServerAddresses *result)
{
	bool		is_clipped = known->has_more;

	for (int i = 0; i < known->count; i++)
	{
		ServerAddress one = {.server = place};
		struct sockaddr_in *v4 = (struct sockaddr_in *) &one.address;
		struct sockaddr_in6 *v6 = (struct sockaddr_in6 *) &one.address;

		one.address.ss_family = (sa_family_t) known->all[i].family;
		one.length = one.address.ss_family == AF_INET ? sizeof(*v4) : sizeof(*v6);
		if (one.address.ss_family == AF_INET)
			memcpy(&v4->sin_addr, known->all[i].bytes, sizeof(v4->sin_addr));
		else
			memcpy(&v6->sin6_addr, known->all[i].bytes, sizeof(v6->sin6_addr));
		/* IPv6 has its port where IPv4 has it */
		v4->sin_port = htons((uint16_t) server->port);
		if (!servers_format_address(one.text, (struct sockaddr *) &one.address,
									server->port) ||
			servers_contain(result, one.text))
			continue;
		is_clipped |= result->count >= limit;
		if (result->count < limit)
			result->all[result->count++] = one;
	}
	if (known->complaint[0] != '\0' && known->count == 0)
		add_reason(result, server->host, known->complaint);
	else if (is_clipped)
		add_reason(result, server->host, "has more addresses than can be used");
}

bool
servers_format_address(char text[SERVERS_ADDRESS_SIZE],
					   const struct sockaddr *address, int port)
{
	char		host[INET6_ADDRSTRLEN];
	const void *bytes = &((const struct sockaddr_in *) address)->sin_addr;

	if (address->sa_family == AF_INET6)
		bytes = &((const struct sockaddr_in6 *) address)->sin6_addr;
	if ((address->sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(bytes)) ||
		inet_ntop(address->sa_family, bytes, host, sizeof(host)) == NULL)
		return false;
	if (address->sa_family == AF_INET6)
		snprintf(text, SERVERS_ADDRESS_SIZE, "[%s]:%d", host, port);
	else
		snprintf(text, SERVERS_ADDRESS_SIZE, "%s:%d", host, port);
	return true;
}

/*
 * Append what is wrong with a host.  When there is no room left, append once
 * that there are more.
 */
static void
add_reason(ServerAddresses *result, const char *host, const char *reason)
{
	char	   *complaint = result->complaint;
	size_t		used = strlen(complaint);
	size_t		room = sizeof(result->complaint) - used;
	size_t		more_length = strlen(MORE_REASONS);
	int			needed;

	if (used >= more_length &&
		strcmp(complaint + used - more_length, MORE_REASONS) == 0)
		return;

	needed = snprintf(complaint + used, room, "%s \"%s\" %s",
					  used > 0 ? "; host" : "Host", host, reason);
	if (needed < 0 || (size_t) needed + more_length >= room)
		memcpy(complaint + used, MORE_REASONS, more_length + 1);
}

/* Copy a part of a text without the blanks around it, as much as fits. */
static void
copy_trimmed(char *copy, size_t size, const char *text, size_t length)
{
	while (length > 0 && strchr(BLANKS, text[0]) != NULL)
	{
		text++;
		length--;
	}
	while (length > 0 && strchr(BLANKS, text[length - 1]) != NULL)
		length--;
	snprintf(copy, size, "%.*s", (int) (length < size ? length : size), text);
}

/*
 * How much of a text to quote.  A clipped one does not end in a byte above
 * 0x7F: it might be half a character, in whatever encoding the text is.
 */
static int
quoted_length(const char *text)
{
	int			length = (int) strnlen(text, QUOTE_MAX);

	if (text[length] != '\0')
		while (length > 0 && (unsigned char) text[length - 1] > 0x7F)
			length--;
	return length;
}

/* Say why in SERVERS_WHY_SIZE bytes; always false, for callers to return. */
static bool
refuse_list(char *why, const char *format,...)
{
	va_list		args;

	va_start(args, format);
	vsnprintf(why, SERVERS_WHY_SIZE, format, args);
	va_end(args);
	return false;
}
