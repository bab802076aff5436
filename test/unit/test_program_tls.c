/*-------------------------------------------------------------------------
 *
 * test_program_tls.c
 *	  Unit tests of src/program/program_tls.c: connections with TLS, and those of a
 *	  child process without.
 *
 * The server is a process that speaks TLS with whoever begins so, and answers
 * each byte with a 'T' then, and with a 'P' otherwise.
 *
 *-------------------------------------------------------------------------
 */
#include "program_tls.h"

#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "program.h"
#include "tap.h"

/* The server is a process of this machine; but that may be busy. */
#define PATIENCE_MS 60000

/* Where certificates are, which is removed at the end, and theirs. */
#define PATH_SIZE 600
static char directory[500];

static struct sockaddr_in server;
static ServerList list;
static ServerAddress address;

/* ---------------------------------------------------------------------
 * What program_tls.c is linked with
 * ---------------------------------------------------------------------
 */

zhandle_t *
zookeeper_init(const char *host, watcher_fn fn, int recv_timeout,
			   const clientid_t *clientid, void *context, int flags)
{
	return (zhandle_t *) directory;
}

/* As the library does, if it is linked as it should be. */
static bool library_is_ours;

int
zookeeper_interest(zhandle_t *zh, int *fd, int *interest, struct timeval *tv)
{
	if (!library_is_ours)
		return -1;
	is_int(-1, connect(-1, (const struct sockaddr *) &server, sizeof(server)), "while it is asked the library connects to nobody");
	is_int(ECONNREFUSED, errno, "while it is asked the library is refused");
	return -1;
}

int
zookeeper_close(zhandle_t *zh)
{
	return 0;
}

/* ---------------------------------------------------------------------
 * The server
 * ---------------------------------------------------------------------
 */

/* A certificate for "localhost" that has signed itself, in a file with its key. */
static const char *
make_certificate(const char *name, char path[PATH_SIZE])
{
	EVP_PKEY   *key = EVP_EC_gen("P-256");
	X509	   *made = X509_new();
	X509_EXTENSION *names = X509V3_EXT_conf_nid(NULL, NULL, NID_subject_alt_name,
												"DNS:localhost");
	FILE	   *file;

	snprintf(path, PATH_SIZE, "%s/%s", directory, name);
	X509_set_version(made, X509_VERSION_3);
	X509_gmtime_adj(X509_getm_notBefore(made), -3600);
	X509_gmtime_adj(X509_getm_notAfter(made), 3600);
	X509_NAME_add_entry_by_txt(X509_get_subject_name(made), "CN", MBSTRING_ASC,
							   (const unsigned char *) name, -1, -1, 0);
	X509_set_issuer_name(made, X509_get_subject_name(made));
	X509_set_pubkey(made, key);
	X509_add_ext(made, names, -1);
	X509_sign(made, key, EVP_sha256());
	file = fopen(path, "w");
	if (file == NULL || PEM_write_X509(file, made) != 1 ||
		PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL) != 1)
		abort();
	fclose(file);
	X509_EXTENSION_free(names);
	X509_free(made);
	EVP_PKEY_free(key);
	return path;
}

/* Serve one connection until it is closed. */
static void
serve(int fd, SSL_CTX *context)
{
	unsigned char first;
	char		bytes[100];
	SSL		   *ssl = SSL_new(context);
	int			received;

	if (recv(fd, &first, 1, MSG_PEEK) != 1)
		return;
	if (first == SSL3_RT_HANDSHAKE)
	{
		SSL_set_fd(ssl, fd);
		if (SSL_accept(ssl) != 1)
			return;
		while ((received = SSL_read(ssl, bytes, sizeof(bytes))) > 0)
		{
			memset(bytes, 'T', (size_t) received);
			if (SSL_write(ssl, bytes, received) <= 0)
				return;
		}
	}
	else
		while ((received = (int) recv(fd, bytes, sizeof(bytes), 0)) > 0)
		{
			memset(bytes, 'P', (size_t) received);
			if (send(fd, bytes, (size_t) received, MSG_NOSIGNAL) <= 0)
				return;
		}
}

/* It ends with this process. */
static void
start_server(const char *certificate)
{
	int			listener = socket(AF_INET, SOCK_STREAM, 0);
	socklen_t	length = sizeof(server);
	SSL_CTX    *context;

	server.sin_family = AF_INET;
	server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(listener, (const struct sockaddr *) &server, length) != 0 ||
		listen(listener, 10) != 0 ||
		getsockname(listener, (struct sockaddr *) &server, &length) != 0)
		abort();
	fflush(stdout);
	if (fork() != 0)
	{
		close(listener);
		return;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGCHLD, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	context = SSL_CTX_new(TLS_server_method());
	if (SSL_CTX_use_certificate_file(context, certificate, SSL_FILETYPE_PEM) != 1 ||
		SSL_CTX_use_PrivateKey_file(context, certificate, SSL_FILETYPE_PEM) != 1)
		_exit(1);
	for (;;)
	{
		int			fd = accept(listener, NULL, NULL);

		if (fd >= 0 && fork() == 0)
		{
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			serve(fd, context);
			_exit(0);
		}
		close(fd);
	}
}

/* ---------------------------------------------------------------------
 * The client
 * ---------------------------------------------------------------------
 */

/* Begin to connect. */
static int
open_connection(void)
{
	int			fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

	if (connect(fd, (const struct sockaddr *) &server, sizeof(server)) != 0 &&
		errno != EINPROGRESS)
		abort();
	return fd;
}

/* Wait for that event; false if it has not come. */
static bool
await(int fd, short event)
{
	struct pollfd polled = {fd, event, 0};
	int64_t		until = protocol_now() + PATIENCE_MS;

	do
	{
		polled.revents = 0;
		if (tls_poll(&polled, 1, 100) > 0)
			return true;
	} while (protocol_now() < until);
	return false;
}

/*
 * Send a byte: what the server answers, or "" at the end of the connection.
 * It is looked at before it is received, as program_main.c does.
 */
static const char *
ask_server(int fd)
{
	static char answer[2];
	char		peeked = '\0';
	int64_t		until = protocol_now() + PATIENCE_MS;
	ssize_t		received;

	if (!await(fd, POLLOUT))
		return "it cannot be sent";
	send(fd, "x", 1, MSG_NOSIGNAL);
	do
	{
		if (!await(fd, POLLIN))
			return "no answer";
		received = recv(fd, &peeked, 1, MSG_PEEK | MSG_DONTWAIT);
	} while (received < 0 && errno == EAGAIN && protocol_now() < until);
	if (received > 0 && (recv(fd, answer, 1, MSG_DONTWAIT) != 1 ||
						 answer[0] != peeked))
		return "what was looked at is gone";
	answer[received > 0 ? 1 : 0] = '\0';
	return answer;
}

/* tls_begin() with that file of authorities. */
static bool
begin(const char *authorities, char why[TLS_WHY_SIZE])
{
	char		text[PATH_SIZE + 10];

	snprintf(text, sizeof(text), "%s\n\n\n\n2\n", authorities);
	why[0] = '\0';
	return tls_begin(text, why);
}

/* The certificate is to be that of this host, from now on. */
static void
expect(const char *host)
{
	list.nservers = 1;
	strcpy(list.servers[0].host, host);
	servers_format_address(address.text, (const struct sockaddr *) &server,
						   ntohs(server.sin_port));
	tls_expect(&list, &address, 1);
}

/* ---------------------------------------------------------------------
 * Tests
 * ---------------------------------------------------------------------
 */

/* In turns, in a process that lives. */
static void
test_turns(const char *good, const char *other)
{
	char		why[TLS_WHY_SIZE];
	char		text[TLS_WHY_SIZE];
	char		away[PATH_SIZE + 10];
	struct sockaddr_in peer = {0};
	socklen_t	length = sizeof(peer);
	int			fd = open_connection();
	int			secure;
	int64_t		received_at;

	is_str("", ask_server(fd), "before TLS begins no server is asked");
	close(fd);

	ok(!begin(good, why), "a library that does not call our connect() has no TLS");
	ok(strstr(why, "does not call the connect() of zklock's program") != NULL, "why");
	library_is_ours = true;
	ok(!begin("/nowhere", why), "a file that is missing");
	ok(strstr(why, "Could not load file \"/nowhere\"") != NULL, "why");
	expect("localhost");
	fd = open_connection();
	is_str("", ask_server(fd), "a connection after TLS could not begin is not made without it");
	close(fd);

	ok(begin(good, why), "TLS begins: %s", why);
	secure = open_connection();
	ok(tls_is_used(secure), "a new one has TLS");
	(void) tls_socket(secure, &received_at);
	is_int(0, received_at, "nothing has come over the new connection yet");
	is_str("T", ask_server(secure), "the new connection is served with TLS");
	is_str("", tls_error(secure), "the new connection has no error");
	tls_describe(secure, text, sizeof(text));
	ok(strncmp(text, "TLSv1.", 6) == 0, "the new connection is described");
	ok(getpeername(tls_socket(secure, &received_at), (struct sockaddr *) &peer, &length) == 0 &&
	   peer.sin_port == server.sin_port, "the socket of the connection with TLS leads to the server");
	ok(tls_socket(secure, &received_at) != secure && received_at > 0,
	   "the new connection has another socket, over which something has come");

	ok(!begin("/nowhere", why), "other settings that are no good");
	fd = open_connection();
	is_str("T", ask_server(fd), "TLS goes on with what it had");
	close(fd);
	ok(!tls_is_used(fd), "a connection that was closed has no TLS");

	ok(begin(other, why), "another authority");
	fd = open_connection();
	is_str("", ask_server(fd), "a server of another authority is not asked");
	ok(strstr(tls_error(fd), "is not good") != NULL, "the error says that the certificate is not good");
	close(fd);
	is_str("T", ask_server(secure), "the connection that was there goes on");

	snprintf(away, sizeof(away), "%s.away", good);
	ok(rename(good, away) == 0 && !begin(good, why), "settings whose file has gone are not taken");
	ok(rename(away, good) == 0 && begin(good, why), "the file is there again");
	fd = open_connection();
	is_str("T", ask_server(fd), "the settings of the first authority are used again");
	close(fd);
	ok(begin(other, why) && begin(good, why) && begin(other, why), "two settings are set in turns");
	fd = open_connection();
	is_str("", ask_server(fd), "the settings that were set last are used");
	close(fd);
	ok(!begin("/nowhere", why) && begin(good, why), "settings after those of a missing file are taken");
	expect("elsewhere");
	fd = open_connection();
	is_str("", ask_server(fd), "a server with the certificate of another host is not asked");
	ok(strstr(tls_error(fd), "is not for \"elsewhere\"") != NULL, "the error says that the certificate is not for the host \"elsewhere\"");
	close(fd);
	is_str("T", ask_server(secure), "the connection that was there goes on");

	tls_expect(&list, &address, 0);
	fd = open_connection();
	is_str("", ask_server(fd), "nobody knows whose certificate is to be at an address");
	ok(strstr(tls_error(fd), "Could not connect") != NULL, "an address of no server is not connected to");
	close(fd);

	is_str("T", ask_server(secure), "the connection with TLS goes on");
	ok(begin(good, why), "TLS begins again");
	expect("localhost");
	fd = open_connection();
	is_str("T", ask_server(fd), "a connection after TLS has begun again is served with TLS");
	close(fd);
	is_str("T", ask_server(secure), "the first connection with TLS works all the time");
	close(secure);
}

/* A connection that fails at once looks like one that is lost, and says why it failed. */
static void
test_refused(const char *good)
{
	struct sockaddr_in nobody = {.sin_family = AF_INET};
	socklen_t	length = sizeof(nobody);
	int			closed = socket(AF_INET, SOCK_STREAM, 0);
	int			fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	char		why[TLS_WHY_SIZE];

	nobody.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(closed, (const struct sockaddr *) &nobody, length) != 0 ||
		getsockname(closed, (struct sockaddr *) &nobody, &length) != 0)
		abort();
	ok(begin(good, why), "TLS begins, and nobody listens");
	servers_format_address(address.text, (const struct sockaddr *) &nobody, ntohs(nobody.sin_port));
	tls_expect(&list, &address, 1);
	is_int(-1, connect(fd, (const struct sockaddr *) &nobody, length), "a connection begins");
	is_int(EINPROGRESS, errno, "and is under way");
	is_str("", ask_server(fd), "it ends");
	ok(strstr(tls_error(fd), "Connection refused") != NULL, "it was refused: %s", tls_error(fd));
	close(fd);
	close(closed);
}

/* A descriptor for which there is no room among the connections with TLS. */
static void
test_many(const char *good)
{
	struct rlimit limit;
	int			low = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	int			high;
	int			lowest = dup(0);
	int			now;
	char		why[TLS_WHY_SIZE];

	close(lowest);
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	high = dup2(low, 1024);
	ok(!tls_is_used(1024), "there are 1024 descriptors with TLS at most");
	if (high < 0)
	{
		note("this process may have no more than that");
		return;
	}
	ok(begin(good, why), "TLS begins, and there are many descriptors");
	is_int(-1, connect(high, (const struct sockaddr *) &server, sizeof(server)), "a greater one has no TLS");
	is_int(ENOBUFS, errno, "and is not connected without");
	now = dup(0);
	is_int(lowest, now, "no descriptor is left behind");
	close(now);
	close(high);
	close(low);
}

/* A child process leaves the connections of its parent's alone. */
static void
test_child(const char *good)
{
	char		why[TLS_WHY_SIZE];
	char		text[TLS_WHY_SIZE];
	int			secure;
	int			status = -1;
	int64_t		received_at;
	pid_t		child;

	ok(begin(good, why), "a child process: TLS begins");
	expect("localhost");
	secure = open_connection();
	is_str("T", ask_server(secure), "TLS");
	fflush(stdout);
	child = fork();
	if (child == 0)
	{
		tls_leave();
		if (tls_is_used(secure))
			_exit(1);
		close(secure);
		secure = open_connection();
		if (strcmp(ask_server(secure), "P") != 0)
			_exit(2);
		if (tls_is_used(secure) || tls_error(secure)[0] != '\0' ||
			tls_socket(secure, &received_at) != secure)
			_exit(3);
		_exit(tls_describe(secure, text, sizeof(text))[0] == '\0' && text[0] == '\0' ? 0 : 4);
	}
	waitpid(child, &status, 0);
	is_int(0, status, "the child connects without");
	is_str("T", ask_server(secure), "the parent's connection with TLS works while the child connects");
	close(secure);
}

int
main(int argc, char **argv)
{
	char		good[PATH_SIZE];
	char		other[PATH_SIZE];
	const char *temporary = getenv("TMPDIR");

	signal(SIGPIPE, SIG_IGN);
	snprintf(directory, sizeof(directory), "%s/test_program_tls.XXXXXX", temporary != NULL ? temporary : "/tmp");
	if (mkdtemp(directory) == NULL)
		return 1;
	start_server(make_certificate("good", good));
	(void) make_certificate("other", other);
	test_turns(good, other);
	test_child(good);
	test_refused(good);
	test_many(good);
	unlink(good);
	unlink(other);
	rmdir(directory);
	return done_testing();
}
