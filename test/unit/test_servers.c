/*-------------------------------------------------------------------------
 *
 * test_servers.c
 *	  Unit test of src/common/servers.c: lists of servers are read, refused with
 *	  the reason, and resolved.  Tables of cases, the expected value first.
 *
 * Needs no network and no DNS: this program's own getaddrinfo() and
 * gai_strerror() stand before libc's, and the first answers for the names in
 * fake_hosts.  All other names, of which only "localhost" and one below
 * ".invalid" are looked up, go to libc.
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE				/* RTLD_NEXT */

#include "servers.h"
#include "tap.h"

#include <dlfcn.h>
#include <netdb.h>
#include <stdlib.h>

#define NELEMS(array) ((int) (sizeof(array) / sizeof((array)[0])))

#define LABEL_63 "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz-0123456789"
#define HOST_253 LABEL_63 "." LABEL_63 "." LABEL_63 "." \
	"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz-01234567"
#define PATH_256 "/" LABEL_63 "/" LABEL_63 "/" LABEL_63 "/" LABEL_63

typedef int (*GetAddrInfo) (const char *host, const char *service,
							const struct addrinfo *hints,
							struct addrinfo **result);

/* What our getaddrinfo() knows. */
static const struct
{
	const char *host;
	int			error;			/* 0, or what getaddrinfo() returns */
	const char *addresses;		/* separated by blanks */
}			fake_hosts[] = {
	{"one.test", 0, "192.0.2.1"},
	{"both.test", 0, "2001:db8::1 192.0.2.1"},
	{"twice.test", 0, "192.0.2.1 192.0.2.7"},
	{"mixed.test", 0, "fe80::1%lo 192.0.2.9"},
	{"local.test", 0, "fe80::1%lo"},
	{"again.test", 0, "192.0.2.1 2001:db8::1 192.0.2.1 2001:db8::1"},
	{"unknown.test", EAI_NONAME, NULL},
	{"later.test", EAI_AGAIN, NULL},
};

/* Has a numeric address been looked up without AI_NUMERICHOST? */
static bool numeric_as_name = false;

/* And anything with other wishes than for addresses of TCP? */
static bool other_wishes = false;

/* Look up each address of a list with libc and chain the results. */
static int
answer_from_list(GetAddrInfo libc, const char *addresses,
				 const struct addrinfo *hints, struct addrinfo **result)
{
	struct addrinfo numeric = *hints;
	struct addrinfo **tail = result;
	char		copy[4096];
	char	   *save = NULL;

	numeric.ai_flags = AI_NUMERICHOST;
	*result = NULL;
	snprintf(copy, sizeof(copy), "%s", addresses);
	for (char *word = strtok_r(copy, " ", &save); word != NULL;
		 word = strtok_r(NULL, " ", &save))
	{
		int			rc = libc(word, NULL, &numeric, tail);

		if (rc != 0)
			return rc;
		while (*tail != NULL)
			tail = &(*tail)->ai_next;
	}
	return 0;
}

/* So many addresses. */
static const char *
many_addresses(int count)
{
	static char addresses[4096];
	size_t		used = 0;

	for (int i = 0; i < count; i++)
		used += snprintf(addresses + used, sizeof(addresses) - used,
						 "203.0.113.%d ", i);
	return addresses;
}

int
getaddrinfo(const char *host, const char *service,
			const struct addrinfo *hints, struct addrinfo **result)
{
	GetAddrInfo libc;

	/* POSIX: the way to get a function out of dlsym() */
	*(void **) &libc = dlsym(RTLD_NEXT, "getaddrinfo");

	if (strspn(host, "0123456789.") == strlen(host) || strchr(host, ':'))
		numeric_as_name |= (hints->ai_flags & AI_NUMERICHOST) == 0;

	other_wishes |= hints->ai_socktype != SOCK_STREAM ||
		(hints->ai_flags & ~AI_NUMERICHOST) != 0;

	if (strlen(host) > 5 && strcmp(host + strlen(host) - 5, ".gone") == 0)
		return EAI_NONAME;
	if (strcmp(host, "many.test") == 0)
		return answer_from_list(libc, many_addresses(100), hints, result);
	if (strcmp(host, "full.test") == 0)
		return answer_from_list(libc, many_addresses(SERVERS_ADDRESSES_MAX), hints, result);
	for (int i = 0; i < NELEMS(fake_hosts); i++)
	{
		if (strcmp(fake_hosts[i].host, host) != 0)
			continue;
		if (fake_hosts[i].error != 0)
			return fake_hosts[i].error;
		return answer_from_list(libc, fake_hosts[i].addresses, hints, result);
	}
	return libc(host, service, hints, result);
}

/* The same words under every libc and in every language. */
const char *
gai_strerror(int error)
{
	return error == EAI_NONAME ? "no such name" :
		error == EAI_AGAIN ? "try again" : "another error";
}

/* The list as "host port, host port chroot": no ambiguity, unlike the input. */
static void
describe(const ServerList *list, char *text, size_t size)
{
	size_t		used = 0;

	for (int i = 0; i < list->nservers; i++)
		used += snprintf(text + used, size - used, "%s%s %d",
						 i > 0 ? ", " : "", list->servers[i].host,
						 list->servers[i].port);
	snprintf(text + used, size - used, " %s", list->chroot);
}

static void
test_good_lists(void)
{
	static const struct
	{
		const char *expected;
		const char *text;
	}			cases[] = {
		{"zk1 2181 ", "zk1"},
		{"zk1 2182 ", "zk1:2182"},
		{"zk1 1 ", "zk1:1"},
		{"zk1 1023, AZaz09 4986 ", "zk1:1023,AZaz09:4986"},
		{"zk1 65535 ", "zk1:65535"},
		{"zk1 2181, zk2 2181, zk3 2183 ", "zk1:2181,zk2,zk3:2183"},
		{"zk-1.example.com. 2181 ", "zk-1.example.com.:2181"},
		{"zk_1 2181 ", "zk_1"},
		{"10.0.0.1 2181 ", "10.0.0.1"},
		{"10.0.0.1 2182 ", "10.0.0.1:2182"},
		{"10.0.0.1.example 2181 ", "10.0.0.1.example"},
		{"1a 2181 ", "1a"},
		{"::1 2181 ", "[::1]"},
		{"::1 2182 ", "[::1]:2182"},
		{"2001:DB8::1 2182, zk2 2181 /a", "[2001:DB8::1]:2182,zk2/a"},
		{"::ffff:10.0.0.1 2181 ", "[::ffff:10.0.0.1]"},
		{"zk1 2181 /zklock", "zk1/zklock"},
		{"zk1 2181, zk2 2182 /a/b", "zk1,zk2:2182/a/b"},
		{"zk1 2181 ", "zk1:2181/"},
		{"zk1 2181, zk2 2181, ::1 2181 /a", " zk1 ,\tzk2:2181\n, [::1]\r /a \n"},
		{"zk1 2181 /a b", "zk1/a b"},
		{"zk1 2181 //", "zk1//"},	/* the check of the root refuses it */
		{"zk1 2181, zk1 2181 ", "zk1,zk1"},
		{HOST_253 " 2181 ", HOST_253},
		{"a 2181 " PATH_256, "a" PATH_256},
	};
	static ServerList list;

	for (int i = 0; i < NELEMS(cases); i++)
	{
		char		why[SERVERS_WHY_SIZE] = "untouched";
		char		got[1024] = "";

		memset(&list, 0x7F, sizeof(list));
		if (ok(servers_parse(cases[i].text, &list, why),
			   "accepted: \"%s\"", cases[i].text))
		{
			describe(&list, got, sizeof(got));
			is_str(cases[i].expected, got, "read: \"%s\"", cases[i].text);
		}
		is_str("", why, "no reason against \"%s\"", cases[i].text);
	}
}

static void
test_bad_lists(void)
{
#define BAD_PORT(port) \
	"Port \"" port "\" is not a decimal number from 1 to 65535 without leading zeros"
#define BAD_HOST(host) \
	"Host name \"" host "\" contains a character other than ASCII letters, digits, hyphen, underscore and dot"

	static const struct
	{
		const char *why;
		const char *text;
	}			cases[] = {
		{"The list names no server", ""},
		{"The list names no server", " \t"},
		{"The list names no server", "/zklock"},
		{"Server 1 of the list is empty", ",zk1"},
		{"Server 2 of the list is empty", "zk1,"},
		{"Server 2 of the list is empty", "zk1, ,zk2"},
		{"Server 2 of the list is empty", "zk1,/a"},
		{"\":2181\" lacks a host", ":2181"},
		{"\"zk1:\" lacks a port behind the colon", "zk1:"},
		{"\"[::1]:\" lacks a port behind the colon", "zk2,[::1]:"},
		{BAD_PORT("0"), "zk1:0"},
		{BAD_PORT("65536"), "zk1:65536"},
		{BAD_PORT("99999999999999999999"), "zk1:99999999999999999999"},
		{BAD_PORT("02181"), "zk1:02181"},
		{BAD_PORT("0x885"), "zk1:0x885"},
		{BAD_PORT("2181x"), "zk1:2181x"},
		{BAD_PORT("65535x"), "zk1:65535x"},
		{BAD_PORT("655350x"), "zk1:655350x"},
		{BAD_PORT("+2181"), "zk1:+2181"},
		{BAD_PORT("-1"), "zk1:-1"},
		{BAD_PORT(" 2181"), "zk1: 2181"},
		{BAD_PORT("21 81"), "[::1]:21 81"},
		{BAD_PORT("21:81"), "[::1]:21:81"},
		{BAD_PORT("2181;zk2"), "zk1:2181;zk2"},
		{BAD_HOST("zk1 zk2"), "zk1 zk2"},
		{BAD_HOST("z\xC3\xBCrich"), "z\xC3\xBCrich"},
		{BAD_HOST("zk1]"), "zk1]"},
		{BAD_HOST("zk["), "zk["},
		{BAD_HOST("zk{"), "zk{"},
		{BAD_HOST("@zk1"), "@zk1"},
		{BAD_HOST("user@zk1"), "user@zk1"},
		{BAD_HOST("zk%1"), "zk%1"},
		{"\"::1\" has more than one colon; an IPv6 address must stand in brackets", "zk1,::1"},
		{"\"zk1:1:2\" has more than one colon; an IPv6 address must stand in brackets", "zk1:1:2"},
		{"\"zk1:1:\" has more than one colon; an IPv6 address must stand in brackets", "zk1:1:"},
		{"\"zk1::\" has more than one colon; an IPv6 address must stand in brackets", "zk1::"},
		{"\"10.0.0\" is not an IPv4 address", "10.0.0"},
		{"\"300.0.0.1\" is not an IPv4 address", "300.0.0.1:2181"},
		{"\"010.0.0.1\" is not an IPv4 address", "010.0.0.1"},
		{"\"2130706433\" is not an IPv4 address", "2130706433"},
		{"\"[::1\" lacks the closing bracket", "[::1"},
		{"\"[::1\" lacks the closing bracket", "[::1,zk2]"},
		{"\"\" is not an IPv6 address", "[]"},
		{"\"::g\" is not an IPv6 address", "[::g]"},
		{"\"zk1\" is not an IPv6 address", "[zk1]:2181"},
		{"\"10.0.0.1\" is not an IPv6 address", "[10.0.0.1]"},
		{"\"0000:0000:0000:0000:0000:0000:0000:0000000000000001\" is not an IPv6 address",
		"[0000:0000:0000:0000:0000:0000:0000:0000000000000001]"},
		{"IPv6 address \"fe80::1%eth0\" has a zone, which is not supported", "[fe80::1%eth0]"},
		{"IPv6 address \"fe80::1\" is link-local, which is not supported", "[fe80::1]:2181"},
		{"IPv6 address \"febf::1\" is link-local, which is not supported", "[febf::1]:2181"},
		{"\"[::1]2181\" has something other than a port behind the bracket", "[::1]2181"},
		{"\"[::1] :2181\" has something other than a port behind the bracket", "[::1] :2181"},
		{"The path \"/zk,zk2:2181/zk\" contains a comma; a path stands once, behind the last server",
		"zk1:2181/zk,zk2:2181/zk"},
		{"The path that starts with \"/" LABEL_63 "/abcdefghijklmno\" is longer than 256 bytes",
		"zk1" PATH_256 "x"},
		{"The host name that starts with \"" LABEL_63 ".abcdefghijklmnop\" is longer than 253 bytes",
		HOST_253 "x"},
	};
	static ServerList list;
	char		why[SERVERS_WHY_SIZE];

	for (int i = 0; i < NELEMS(cases); i++)
	{
		snprintf(why, sizeof(why), "untouched");
		ok(!servers_parse(cases[i].text, &list, why),
		   "refused: \"%s\"", cases[i].text);
		is_str(cases[i].why, why, "reason against \"%s\"", cases[i].text);
	}
}

/* Bounds that do not fit a table. */
static void
test_bounds(void)
{
	static ServerList list;
	char		text[4096];
	char		why[SERVERS_WHY_SIZE];
	size_t		used = 0;

	for (int i = 0; i < SERVERS_MAX; i++)
		used += snprintf(text + used, sizeof(text) - used, "%szk%d",
						 i > 0 ? "," : "", i);
	ok(servers_parse(text, &list, why), "as many servers as fit are taken");
	is_int(SERVERS_MAX, list.nservers, "as many as fit: all are there");
	is_str("zk31", list.servers[31].host, "as many as fit: the last");
	snprintf(text + used, sizeof(text) - used, ",one-more");
	ok(!servers_parse(text, &list, why), "one server more than fit is refused");
	is_str("The list names more than 32 servers", why, "one more: reason");

	/* A quote is clipped, and not within a character. */
	memset(text, 'a', 200);
	text[79] = '\xC3';
	text[80] = '\xBC';
	text[200] = '\0';
	ok(!servers_parse(text, &list, why), "a long bad name");
	text[79] = '\0';
	ok(strncmp(why, "Host name \"", 11) == 0 &&
	   strncmp(why + 11, text, 79) == 0 && why[11 + 79] == '"',
	   "a long bad name is quoted up to 80 bytes, in whole characters");

	memset(text, 'a', 200);
	text[79] = '\x7F';
	ok(!servers_parse(text, &list, why), "clipped behind ASCII's last");
	ok(strncmp(why + 11, text, 80) == 0 && why[11 + 80] == '"',
	   "a quote is clipped behind a whole ASCII character");
	text[78] = '\xC3';
	text[79] = '\x80';
	ok(!servers_parse(text, &list, why), "clipped behind another character");
	ok(strncmp(why + 11, text, 78) == 0 && why[11 + 78] == '"',
	   "a quote is clipped ahead of a character that might go on");
	text[80] = '\0';
	ok(!servers_parse(text, &list, why), "a host name no longer than a quote");
	ok(strncmp(why + 11, text, 80) == 0 && why[11 + 80] == '"',
	   "is quoted to its end");
	memset(text, '\xC3', 200);
	ok(!servers_parse(text, &list, why), "nothing in a quote is ASCII");
	ok(strncmp(why, "Host name \"\" contains", 20) == 0, "a quote of bytes that are no text is empty");

	/* Here the text is an array of its own, and sanitizers see what is read. */
	memset(text, '\xC3', 200);
	text[200] = text[201] = ':';
	text[202] = '\0';
	ok(!servers_parse(text, &list, why), "a host name of bytes that are no text has colons");
	ok(strncmp(why, "\"\" has more than one colon", 26) == 0, "bytes that are no text are not quoted ahead of colons");

	/* The longest sentence of all, with a full quote. */
	memset(text, '!', 200);
	text[200] = '\0';
	ok(!servers_parse(text, &list, why), "the longest reason");
	is_str(" and dot", why + strlen(why) - 8,
		   "256 bytes hold the longest reason");

	/* More than fits Server.host. */
	memset(text, '1', 400);
	text[0] = '[';
	text[399] = ']';
	text[400] = '\0';
	ok(!servers_parse(text, &list, why), "a long bad address");
	is_str(" is not an IPv6 address", why + strlen(why) - 23,
		   "a long bad address: reason");

	/* As much as fits is looked at as any other. */
	memset(text, '1', 255);
	memcpy(text, "[fe80::1%", 9);
	text[254] = ']';
	text[255] = '\0';
	ok(!servers_parse(text, &list, why), "a long address with a zone");
	is_str(" has a zone, which is not supported", why + strlen(why) - 35,
		   "a long address with a zone: reason");
}

static void
test_is_numeric(void)
{
	static const struct
	{
		bool		expected;
		const char *host;
	}			cases[] = {
		{true, "10.0.0.1"},
		{true, "::1"},
		{true, "::ffff:10.0.0.1"},
		{false, "localhost"},
		{false, "zk1"},
		{false, "10.0.0"},
		{false, "0x7f.0x1"},
	};

	for (int i = 0; i < NELEMS(cases); i++)
		ok(servers_is_numeric(cases[i].host) == cases[i].expected,
		   "%s: %s", cases[i].expected ? "numeric" : "not numeric",
		   cases[i].host);
}

static int
count_addresses(const char *connect_string)
{
	int			n = connect_string[0] != '\0';

	for (const char *c = connect_string; *c != '\0'; c++)
		n += *c == ',';
	return n;
}

/* The addresses as ZooKeeper's library takes them, from the first on. */
static char written[SERVERS_TEXT_SIZE];

/* Parse, look up, collect and write; a list that is not accepted counts as a failed test. */
static bool
resolve(const char *text, ServerAddresses *result)
{
	static ServerList list;
	static HostAddresses hosts[SERVERS_MAX];
	const HostAddresses *known[SERVERS_MAX];
	char		why[SERVERS_WHY_SIZE];
	int			count;

	memset(result, 'x', sizeof(*result));
	memset(hosts, 'x', sizeof(hosts));
	if (!ok(servers_parse(text, &list, why), "accepted: %s", text))
		exit(done_testing());
	written[0] = '\0';
	for (int i = 0; i < list.nservers; i++)
	{
		servers_look_up(list.servers[i].host, &hosts[i]);
		known[i] = &hosts[i];
	}
	if (!servers_collect(&list, known, result))
		return false;
	count = servers_write(result, 0, written);
	is_int(count_addresses(written), count, "as many of %s as are said", text);
	return true;
}

/* Whose each of the addresses is: its certificate must be that server's. */
static void
test_owners(void)
{
	static const int expected[] = {0, 0, 1, 2};
	ServerAddresses result;

	ok(resolve("twice.test,192.0.2.9,both.test", &result), "three servers with addresses");
	is_str("192.0.2.1:2181,192.0.2.7:2181,192.0.2.9:2181,2001:db8::1:2181,192.0.2.1:2181",
		   written, "are four different ones, and the first again");
	for (int i = 0; i < NELEMS(expected); i++)
		is_int(expected[i], result.all[i].server, "the server of address %s is known", result.all[i].text);
	is_int(5, servers_write(&result, 6, written), "from another one on there are as many");
	/* a server that is silent must not come twice where the list begins anew: t/237 */
	is_str("192.0.2.7:2181,192.0.2.9:2181,2001:db8::1:2181,192.0.2.1:2181,192.0.2.1:2181",
		   written, "a list from another server on is the same list, turned");
	is_int(5, servers_write(&result, 13, written), "there are as many servers from any number on");
	is_str("2001:db8::1:2181,192.0.2.1:2181,192.0.2.1:2181,192.0.2.7:2181,192.0.2.9:2181",
		   written, "a list from any number on is turned by the rest of that number");
}

/* To connect to an address is to connect to what its text says. */
static void
check_sockets(const ServerAddresses *addresses)
{
	for (int i = 0; i < addresses->count; i++)
	{
		const ServerAddress *one = &addresses->all[i];
		char		host[SERVERS_ADDRESS_SIZE];
		char		port[8];
		char		text[SERVERS_ADDRESS_SIZE + 8];

		getnameinfo((const struct sockaddr *) &one->address, one->length, host,
					sizeof(host), port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV);
		snprintf(text, sizeof(text), strchr(host, ':') != NULL ? "[%s]:%s" : "%s:%s",
				 host, port);
		is_str(one->text, text, "an address as a socket's");
	}
}

static void
test_resolution(void)
{
	static const struct
	{
		const char *addresses;	/* "" if none is found */
		const char *complaint;
		const char *text;
	}			cases[] = {
		/* numeric; an even number is made odd */
		{"192.0.2.1:2181", "", "192.0.2.1"},
		{"::1:2182", "", "[::1]:2182"},
		{"2001:db8::1:2181", "", "[2001:0DB8:0::1]"},
		{"192.0.2.1:2181,192.0.2.2:2181,192.0.2.1:2181", "",
		"192.0.2.1,192.0.2.2"},
		{"192.0.2.1:2181,::1:2181,192.0.2.3:2181", "",
		"192.0.2.1,[::1],192.0.2.3"},
		{"192.0.2.1:1,::1:2,::2:3,::3:4,192.0.2.1:1", "",
		"192.0.2.1:1,[::1]:2,[::2]:3,[::3]:4"},

		/* duplicates */
		{"192.0.2.1:2181", "", "192.0.2.1,192.0.2.1:2181"},
		{"::1:2181", "", "[::1],[0:0::1],[::0001]"},
		{"192.0.2.1:1,192.0.2.1:2,192.0.2.1:1", "",
		"192.0.2.1:1,192.0.2.1:2,192.0.2.1:1"},

		/* names */
		{"192.0.2.1:2181", "", "one.test"},
		{"2001:db8::1:2181,192.0.2.1:2181,2001:db8::1:2181", "", "both.test"},
		{"2001:db8::1:7,192.0.2.1:7,192.0.2.2:8", "",
		"both.test:7,192.0.2.2:8,one.test:7"},

		{"192.0.2.1:2181,192.0.2.7:2181,192.0.2.1:2181", "",
		"one.test,twice.test"},

		/* names of no use, alone and beside others */
		{"192.0.2.9:2181", "", "mixed.test"},
		{"", "Host \"local.test\" has no address but link-local ones",
		"local.test"},
		{"192.0.2.1:2181",
			"Host \"local.test\" has no address but link-local ones",
		"local.test,one.test"},
		{"", "Host \"unknown.test\" could not be resolved: no such name",
		"unknown.test"},
		{"192.0.2.1:2181",
			"Host \"unknown.test\" could not be resolved: no such name",
		"one.test,unknown.test"},
		{"192.0.2.1:2181",
			"Host \"unknown.test\" could not be resolved: no such name",
		"unknown.test,192.0.2.1"},
		{"",
			"Host \"later.test\" could not be resolved: try again; host \"unknown.test\" could not be resolved: no such name",
		"later.test,unknown.test"},
	};

	for (int i = 0; i < NELEMS(cases); i++)
	{
		const char *text = cases[i].text;
		const char *complaint = cases[i].complaint;
		bool		found = cases[i].addresses[0] != '\0';
		ServerAddresses result;

		is_int(found, resolve(text, &result), "resolve %s", text);
		is_str(cases[i].addresses, written, "addresses of %s",
			   text);
		is_str(complaint, result.complaint, "complaint about %s", text);
		if (found)
			check_sockets(&result);
	}

	ok(!other_wishes, "only addresses of TCP are asked for");
	ok(!numeric_as_name, "numeric addresses never go to DNS");
}

/* A name with more addresses than we use does not crowd out the others. */
static void
test_many_addresses(void)
{
	ServerAddresses result;

	ok(resolve("many.test", &result), "many addresses");
	is_int(SERVERS_ADDRESSES_MAX, count_addresses(written),
		   "many addresses: as many as we use");
	ok(strstr(written, ",203.0.113.62:2181") != NULL,
	   "many addresses: to the last of these");
	is_str("Host \"many.test\" has more addresses than can be used",
		   result.complaint, "many addresses: warning");

	ok(resolve("many.test,one.test,[2001:db8::7]", &result),
	   "many addresses before others");
	is_int(SERVERS_ADDRESSES_MAX, count_addresses(written),
		   "many addresses before others: as many as we use");
	ok(strstr(written, ",192.0.2.1:2181,2001:db8::7:2181") != NULL,
	   "many addresses before others: these have their place");

	ok(resolve("[2001:db8::7],many.test", &result),
	   "many addresses behind others");
	is_int(SERVERS_ADDRESSES_MAX, count_addresses(written),
		   "many addresses behind others: as many as we use");

	ok(resolve("full.test", &result), "just as many addresses as we use");
	is_str("", result.complaint, "just as many: there are no more");
	ok(resolve("full.test,one.test", &result), "just as many before another");
	is_int(SERVERS_ADDRESSES_MAX, count_addresses(written), "just as many before another: as many as we use");
	is_str("Host \"full.test\" has more addresses than can be used", result.complaint,
		   "just as many before another: warning");
}

/* What the resolver says twice is one address. */
static void
test_repeated_addresses(void)
{
	HostAddresses found;

	servers_look_up("again.test", &found);
	is_int(2, found.count, "two addresses, each of them twice");
	ok(found.all[0].family != found.all[1].family, "one of either family");
}

/* As many servers as the list holds, none of which is known. */
static void
test_many_errors(void)
{
	const char *more = "; and more";
	char		text[4096] = "unknown.test";
	ServerAddresses result;
	size_t		length;

	for (int i = 1; i < SERVERS_MAX; i++)
		strcat(text, ",unknown.test");
	ok(!resolve(text, &result), "many errors");
	is_str("", written, "many errors: no address");
	length = strlen(result.complaint);
	ok(length < sizeof(result.complaint), "many errors: bounded");
	is_str(more, result.complaint + length - strlen(more),
		   "many errors: says that there are more");
	ok(strstr(result.complaint, "; and more; ") == NULL,
	   "many errors: says it once");
	result.complaint[length - strlen(more)] = '\0';
	is_str("no such name", result.complaint + length - strlen(more) - 12,
		   "many errors: the last one before is whole");
}

/*
 * Three reasons of all lengths: each of them is there if it and a word that there are
 * more find room, with all before it.
 */
static void
test_room_for_reasons(void)
{
	for (int length = 6; length <= SERVERS_HOST_MAX; length++)
	{
		ServerAddresses *result = malloc(sizeof(*result));
		char		first[SERVERS_HOST_MAX + 1];
		char		text[1024];
		char		expected[1024] = "";
		bool		is_full = false;

		memset(first, 'a', sizeof(first));
		strcpy(first + length - 5, ".gone");
		snprintf(text, sizeof(text), "%s,%s,a.gone", first, first);
		for (int i = 0; i < 3 && !is_full; i++)
		{
			size_t		used = strlen(expected);

			snprintf(expected + used, sizeof(expected) - used,
					 "%s \"%s\" could not be resolved: no such name",
					 i > 0 ? "; host" : "Host", i < 2 ? first : "a.gone");
			is_full = strlen(expected) + strlen("; and more") >= sizeof(result->complaint);
			if (is_full)
				strcpy(expected + used, "; and more");
		}
		resolve(text, result);
		is_str(expected, result->complaint, "reasons against names of %d bytes", length);
		free(result);
	}
}

/* Before all hosts have been looked up there is something to begin with. */
static void
test_incomplete(void)
{
	static HostAddresses hosts[2];
	const HostAddresses *known[2] = {&hosts[0], &hosts[1]};
	ServerList	list;
	char		why[SERVERS_WHY_SIZE];
	ServerAddresses none;
	ServerAddresses some;
	ServerAddresses all;

	servers_parse("one.test:1,twice.test:2", &list, why);
	ok(!servers_collect(&list, known, &none), "nothing is known");
	is_str("", none.complaint, "unknown hosts are no complaint");
	servers_look_up("twice.test", &hosts[1]);
	ok(servers_collect(&list, known, &some), "one of two hosts is known");
	is_int(2, some.count, "the known host has its two addresses");
	is_int(1, some.all[0].server, "the addresses are those of the second server");
	is_str("", some.complaint, "one unknown host of two is no complaint");
	servers_look_up("one.test", &hosts[0]);
	ok(servers_collect(&list, known, &all), "both are known");
	ok(servers_contain(&all, "192.0.2.1:1"), "the addresses contain one of the first host");
	ok(!servers_contain(&all, "192.0.2.1:3"), "the addresses do not contain it with another port");
	ok(!servers_are_same(&all, &some) && !servers_are_same(&some, &all), "they are more than before");
	servers_parse("twice.test:2,one.test:1", &list, why);
	known[0] = &hosts[1];
	known[1] = &hosts[0];
	servers_collect(&list, known, &some);
	ok(servers_are_same(&all, &some), "they are the same in another order");
	hosts[1].all[0].bytes[3]++;
	servers_collect(&list, known, &some);
	is_int(all.count, some.count, "one is replaced by another");
	ok(!servers_are_same(&all, &some), "a list with another address differs");
	ok(!servers_are_same(&some, &all), "lists differ, whichever is looked at first");
	servers_look_up("unknown.test", &hosts[0]);
	is_int(0, hosts[0].count, "an unknown host has no addresses, whatever was known");
}

/* What libc makes of the two names that RFC 6761 reserves. */
static void
test_libc(void)
{
	ServerAddresses result;

	ok(resolve("localhost:2182", &result), "localhost is found");
	ok(strstr(written, "127.0.0.1:2182") != NULL ||
	   strstr(written, "::1:2182") != NULL,
	   "localhost is a loopback address");
	is_int(1, count_addresses(written) % 2,
		   "localhost: an odd number");

	ok(!resolve("no-such-host.invalid", &result), "an unknown name alone");
	ok(strncmp(result.complaint, "Host \"no-such-host.invalid\" could not", 37) == 0,
	   "an unknown name alone: error");

	ok(resolve("no-such-host.invalid,127.0.0.1", &result),
	   "an unknown name beside a good one");
	is_str("127.0.0.1:2181", written,
		   "an unknown name beside a good one: the good one");
	ok(strncmp(result.complaint, "Host \"no-such-host.invalid\" could not", 37) == 0,
	   "an unknown name beside a good one: warning");
}

/* Lists that may be of one ensemble, and others. */
static void
test_overlap(void)
{
	static const struct
	{
		bool		expected;
		const char *one;
		const char *other;
	}			cases[] = {
		{true, "zk1:2181", "zk1:2181"},
		{true, "zk1", "zk1:2181"},
		{true, "zk1,zk2", "zk3,zk2"},
		{true, "zk1", "zk3,zk2,zk1"},
		{true, "zk1,zk2,zk3", "zk3"},
		{true, "ZK1.example", "zk1.Example"},
		{true, "[::1]:2181,zk2", "[::1]"},
		{true, "zk1,zk2/a", "zk2/a"},
		{false, "zk1,zk2", "zk3,zk4"},
		{false, "zk1:2181", "zk1:2182"},
		{false, "zk1", "zk1.example"},
		{false, "zk1", "zk1/a"},
		{false, "zk1/b", "zk1/a"}
	};

	for (int i = 0; i < NELEMS(cases); i++)
	{
		ServerList	one;
		ServerList	other;
		char		why[SERVERS_WHY_SIZE];

		ok(servers_parse(cases[i].one, &one, why) && servers_parse(cases[i].other, &other, why),
		   "%s and %s are lists", cases[i].one, cases[i].other);
		ok(servers_overlap(&one, &other) == cases[i].expected, "do %s and %s have a server in common?", cases[i].one, cases[i].other);
		ok(servers_overlap(&other, &one) == cases[i].expected, "and the other way round?");
	}
}

int
main(void)
{
	test_good_lists();
	test_bad_lists();
	test_bounds();
	test_is_numeric();
	test_resolution();
	test_owners();
	test_many_addresses();
	test_repeated_addresses();
	test_many_errors();
	test_room_for_reasons();
	test_incomplete();
	test_libc();
	test_overlap();
	return done_testing();
}
