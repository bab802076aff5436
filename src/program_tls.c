/*-------------------------------------------------------------------------
 *
 * program_tls.c
 *	  TLS between the session's program and ZooKeeper's servers.
 *
 * A line is one connection: the socket that the caller of connect() has, which
 * is connected to nothing, the TCP connection, and what has been sent and is
 * not on its way yet.  It lives until the caller closes his socket.  If it
 * fails before, the caller finds the end of its input, and tls_error() says
 * why.
 *
 *-------------------------------------------------------------------------
 */
#include "program_tls.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "ask.h"
#include "program.h"

/* What TLS takes at a time, and as much as one of its records has. */
#define BUFFER_SIZE (16 * 1024)

/*
 * Descriptors of callers are below that: program_ask.c has two for each of
 * ASK_ALL_MAX addresses at a time.
 */
#define FDS_MAX 1024

/*
 * What runs the passphrase command, for so many seconds at most.  Who goes on
 * behind it has no pipe of ours, and nobody has the channel and the page.
 */
#define RUN_FOR(seconds) "exec timeout -s KILL " seconds " sh -c 'said=$(eval \"$COMMAND\") && printf %s \"$said\"' 3>&- 4>&-"

/* What the text of tls_begin() holds; the first are files. */
typedef enum Setting
{
	CA_FILE,
	CERT_FILE,
	KEY_FILE,
	CRL_FILE,
	MIN_VERSION,
	PASSPHRASE_COMMAND
} Setting;

typedef struct Line
{
	int			outer;			/* the TCP connection */
	SSL		   *ssl;			/* NULL: it has failed before */
	char		host[SERVERS_HOST_MAX + 1]; /* whose certificate it must be; ""
											 * if that is not known */
	char		address[SERVERS_ADDRESS_SIZE];
	bool		is_ready;		/* the handshake is done */
	bool		is_untrusted;	/* its certificate was found no good */
	bool		is_over;		/* nothing comes or goes any more */
	bool		is_stuck;		/* OpenSSL waits until it can write */
	bool		has_more;		/* OpenSSL may have more than it was asked for */
	int64_t		received_at;	/* 0: nothing was */
	char		error[TLS_WHY_SIZE];
	size_t		nleaving;		/* bytes that OpenSSL has not taken yet */
	char		leaving[BUFFER_SIZE];
} Line;

static char *settings[PASSPHRASE_COMMAND + 1];
static uint64_t files_read;		/* their state when they were read last */
static char stale[TLS_WHY_SIZE];	/* why those of before are used, or "" */
static const char *fault;		/* why a file is no good; NULL: it may be */
static SSL_CTX *context;		/* NULL: without TLS */
static Line *lines[FDS_MAX];	/* by their callers' descriptors */

/* The server at each address. */
static struct
{
	char		address[SERVERS_ADDRESS_SIZE];
	char		host[SERVERS_HOST_MAX + 1];
}			expected[ASK_ALL_MAX];
static int	nexpected;

/* Calls of connect() while it is proved that the library does call ours. */
static int	nproved = -1;

static SSL_CTX *load(char why[TLS_WHY_SIZE]);
static uint64_t state_of_files(void);
static bool load_file(SSL_CTX *made, Setting file, char why[TLS_WHY_SIZE]);
static int	ask_passphrase(char *phrase, int size, int is_writing, void *unused);
static const char *complaint_of_key(const struct stat *status);
static bool is_ours(void);
static int	make_line(int fd, const struct sockaddr *address,
					  socklen_t length);
static bool begin_handshake(Line *line);
static Line *line_of(int fd);
static void move(Line *line);
static short find_ready(const Line *line, short events, short revents);
static void note_refusal(Line *line, int rc);
static void fail(Line *line, int system_error);
static int	note_verdict(int is_good, X509_STORE_CTX *store);
static int64_t expiry_of(const X509 *certificate);
static void read_text(BIO *text, char *to, size_t size);

/*
 * The library's connect(), and everybody's.  The library finds it only if the
 * program exports it; from PostgreSQL 16 on PGXS hides what does not ask.  If
 * it did not find one of the others, it would have a socket without a
 * connection.
 */
#define IN_PLACE_OF(name) __asm__(name) __attribute__((visibility("default")))
int			program_connect(int fd, const struct sockaddr *address,
							socklen_t length) IN_PLACE_OF("connect");
ssize_t		program_send(int fd, const void *bytes, size_t length,
						 int flags) IN_PLACE_OF("send");
ssize_t		program_recv(int fd, void *bytes, size_t size,
						 int flags) IN_PLACE_OF("recv");
int			program_close(int fd) IN_PLACE_OF("close");

bool
tls_begin(const char *text, char why[TLS_WHY_SIZE])
{
	char	   *rest = strdup(text);

	for (int i = CA_FILE; i <= PASSPHRASE_COMMAND; i++)
		settings[i] = rest == NULL ? "" :
			strsep(&rest, i < PASSPHRASE_COMMAND ? "\n" : "");
	if (settings[CA_FILE][0] == '\0')
		snprintf(why, TLS_WHY_SIZE, "\"zklock.ssl\" is on, and \"zklock.ssl_ca_file\" names no file by which servers could be verified");
	else if (!settings[CERT_FILE][0] != !settings[KEY_FILE][0])
		snprintf(why, TLS_WHY_SIZE, "Of \"zklock.ssl_cert_file\" and \"zklock.ssl_key_file\" only one is set");
	else
		context = load(why);
	if (context == NULL)
		return false;
	if (!is_ours())
		snprintf(why, TLS_WHY_SIZE, "ZooKeeper's client library does not call the connect() of zklock's program, so its connections cannot be encrypted");
	return why[0] == '\0';
}

void
tls_expect(const ServerList *list, const ServerAddress addresses[], int count)
{
	nexpected = count;
	for (int i = 0; i < count; i++)
	{
		strcpy(expected[i].address, addresses[i].text);
		strcpy(expected[i].host, list->servers[addresses[i].server].host);
	}
}

bool
tls_is_on(void)
{
	return context != NULL;
}

void
tls_leave(void)
{
	context = NULL;
	memset(lines, 0, sizeof(lines));	/* the parent's */
}

int
tls_poll(struct pollfd *polled, int count, int timeout_ms)
{
	struct pollfd real[ASK_ALL_MAX + 1];
	int			nready = 0;

	for (int i = 0; i < count; i++)
	{
		Line	   *line = line_of(polled[i].fd);

		real[i] = polled[i];
		if (line == NULL)
			continue;
		move(line);
		if (find_ready(line, polled[i].events, 0) != 0)
			timeout_ms = 0;
		real[i].fd = line->outer;
		real[i].events = line->is_stuck ? POLLIN | POLLOUT : POLLIN;
	}
	poll(real, (nfds_t) count, timeout_ms); /* a signal is as good as time */
	for (int i = 0; i < count; i++)
	{
		Line	   *line = line_of(polled[i].fd);

		if (line != NULL && real[i].revents != 0 && !line->is_ready)
			move(line);
		polled[i].revents = line == NULL ? real[i].revents :
			find_ready(line, polled[i].events, real[i].revents);
		nready += polled[i].revents != 0;
	}
	return nready;
}

const char *
tls_error(int fd)
{
	const Line *line = line_of(fd);

	return line != NULL ? line->error : "";
}

int
tls_socket(int fd, int64_t *received_at)
{
	const Line *line = line_of(fd);

	*received_at = line != NULL ? line->received_at : INT64_MAX;
	return line != NULL ? line->outer : fd;
}

const char *
tls_describe(int fd, char *text, size_t size)
{
	const Line *line = line_of(fd);
	STACK_OF(X509) *chain = line != NULL && line->is_ready ?
		SSL_get0_verified_chain(line->ssl) : NULL;
	const X509 *own = chain != NULL ? SSL_get_certificate(line->ssl) : NULL;
	int64_t		expiry = INT64_MAX;
	BIO		   *subject = chain != NULL ? BIO_new(BIO_s_mem()) : NULL;
	int			length;

	text[0] = '\0';
	if (subject == NULL)
		return stale;
	for (int i = 0; i < sk_X509_num(chain); i++)
		if (expiry_of(sk_X509_value(chain, i)) < expiry)
			expiry = expiry_of(sk_X509_value(chain, i));
	length = snprintf(text, size, "%s %s %lld %lld ", SSL_get_version(line->ssl),
					  SSL_get_cipher(line->ssl), (long long) expiry,
					  own != NULL ? (long long) expiry_of(own) : 0);
	X509_NAME_print_ex(subject, X509_get_subject_name(sk_X509_value(chain, 0)),
					   0, XN_FLAG_RFC2253);
	read_text(subject, text + length, size - (size_t) length);
	return stale;
}

/*
 * Whatever else connects, for example to a local name service, is left alone.
 */
int
program_connect(int fd, const struct sockaddr *address, socklen_t length)
{
	if (nproved >= 0)
	{
		nproved++;
		errno = ECONNREFUSED;
		return -1;
	}
	if (context == NULL || (address->sa_family != AF_INET &&
							address->sa_family != AF_INET6))
		return (int) syscall(SYS_connect, fd, address, length);
	return make_line(fd, address, length);
}

/* What is sent until the next tls_poll() goes together, as one record. */
ssize_t
program_send(int fd, const void *bytes, size_t length, int flags)
{
	Line	   *line = line_of(fd);

	if (line == NULL)
		return syscall(SYS_sendto, fd, bytes, length, flags, NULL, 0);
	if (line->nleaving + length > BUFFER_SIZE)
		move(line);
	if (line->is_over)
		return (ssize_t) length;	/* into nothing */
	if (length > BUFFER_SIZE - line->nleaving)
		length = BUFFER_SIZE - line->nleaving;
	errno = EAGAIN;
	if (length == 0 || line->is_stuck)
		return -1;
	memcpy(line->leaving + line->nleaving, bytes, length);
	line->nleaving += length;
	return (ssize_t) length;
}

ssize_t
program_recv(int fd, void *bytes, size_t size, int flags)
{
	Line	   *line = line_of(fd);
	int			length;

	if (line == NULL)
		return syscall(SYS_recvfrom, fd, bytes, size, flags, NULL, NULL);
	if (line->is_ready && !line->is_over)
	{
		ERR_clear_error();
		length = SSL_read(line->ssl, bytes, (int) size);
		line->has_more = length > 0 && SSL_has_pending(line->ssl);
		if (length > 0)
		{
			line->received_at = protocol_now();
			return length;
		}
		note_refusal(line, length);
	}
	errno = EAGAIN;
	return line->is_over ? 0 : -1;
}

int
program_close(int fd)
{
	Line	   *line = line_of(fd);

	if (line != NULL)
	{
		lines[fd] = NULL;
		move(line);
		if (line->is_ready && !line->is_over)
			SSL_shutdown(line->ssl);	/* as far as it goes now */
		SSL_free(line->ssl);
		close(line->outer);		/* or -1 */
		explicit_bzero(line, sizeof(*line));
		free(line);
	}
	return (int) syscall(SYS_close, fd);
}

/* ---------------------------------------------------------------------
 * Beginning
 * ---------------------------------------------------------------------
 */

/* A context with all that the settings name; NULL with a reason. */
static SSL_CTX *
load(char why[TLS_WHY_SIZE])
{
	SSL_CTX    *made = SSL_CTX_new(TLS_client_method());

	snprintf(why, TLS_WHY_SIZE, "OpenSSL could not be started");
	if (made == NULL)
		return NULL;
	why[0] = '\0';
	SSL_CTX_set_read_ahead(made, 1);
	SSL_CTX_set_min_proto_version(made,
								  settings[MIN_VERSION][0] == '3' ?
								  TLS1_3_VERSION : TLS1_2_VERSION);
	SSL_CTX_set_verify(made, SSL_VERIFY_PEER, note_verdict);
	SSL_CTX_set_default_passwd_cb(made, ask_passphrase);
	files_read = state_of_files();
	for (int i = CA_FILE; i <= CRL_FILE; i++)
		if (settings[i][0] != '\0' && !load_file(made, i, why))
		{
			SSL_CTX_free(made);
			return NULL;
		}
	return made;
}

/* Another number whenever one of the files is replaced or changed. */
static uint64_t
state_of_files(void)
{
	uint64_t	state = 0;
	struct stat file;

	for (int i = CA_FILE; i <= CRL_FILE; i++)
		if (stat(settings[i], &file) == 0)
			state = state * 31 + file.st_ino +
				(uint64_t) (file.st_ctim.tv_sec * 1000000000 + file.st_ctim.tv_nsec);
	return state;
}

/* Not a FIFO, which would hold us up. */
static bool
load_file(SSL_CTX *made, Setting file, char why[TLS_WHY_SIZE])
{
	const char *path = settings[file];
	struct stat status;
	int			rc = 0;

	ERR_clear_error();
	fault = NULL;
	if (stat(path, &status) != 0)
		fault = strerror(errno);
	else if (!S_ISREG(status.st_mode))
		fault = "not a regular file";
	else if (file == CA_FILE)
		rc = SSL_CTX_load_verify_locations(made, path, NULL);
	else if (file == CERT_FILE)
		rc = SSL_CTX_use_certificate_chain_file(made, path);
	else if (file == CRL_FILE)
		rc = SSL_CTX_load_verify_locations(made, path, NULL) == 1 &&
			X509_STORE_set_flags(SSL_CTX_get_cert_store(made),
								 X509_V_FLAG_CRL_CHECK | X509_V_FLAG_CRL_CHECK_ALL);
	else if ((fault = complaint_of_key(&status)) == NULL)
		rc = SSL_CTX_use_PrivateKey_file(made, path, SSL_FILETYPE_PEM);
	if (fault == NULL)
		fault = ERR_reason_error_string(ERR_peek_error());
	if (rc != 1)
		snprintf(why, TLS_WHY_SIZE, "Could not load file \"%.250s\": %s", path,
				 fault != NULL ? fault : "it cannot be read");
	return rc == 1;
}

/* NULL: nobody else can read it. */
static const char *
complaint_of_key(const struct stat *status)
{
	mode_t		others = status->st_uid == 0 ? S_IWGRP | S_IXGRP | S_IRWXO :
		S_IRWXG | S_IRWXO;

	if (status->st_uid != geteuid() && status->st_uid != 0)
		return "it must be owned by the database user or root";
	return (status->st_mode & others) == 0 ? NULL :
		"it has group or world access; it must have permissions u=rw (0600) or less if owned by the database user, or u=rw,g=r (0640) or less if owned by root";
}

/*
 * The passphrase of the key, as PostgreSQL asks for that of its own: the first
 * line that the command says.  PostgreSQL's run_ssl_passphrase_command() is no
 * help: it runs the server's own, for as long as that takes, and in a backend.
 * OpenSSL clears what is returned.  It may ask again if it got nothing.
 */
static int
ask_passphrase(char *phrase, int size, int is_writing, void *unused)
{
	FILE	   *said;

	if (fault != NULL)
		return -1;
	fault = "it needs a passphrase, and \"zklock.ssl_passphrase_command\" is empty, failed or took too long";
	setenv("COMMAND", settings[PASSPHRASE_COMMAND], 1);
	said = popen(context == NULL ? RUN_FOR("5") : RUN_FOR("1"), "re");
	if (said == NULL)
		return -1;
	setvbuf(said, NULL, _IONBF, 0); /* no copy */
	phrase[fread(phrase, 1, (size_t) size - 1, said)] = '\0';
	if (pclose(said) == 0 && phrase[0] != '\0')
		fault = "what \"zklock.ssl_passphrase_command\" says is not its passphrase";
	else
		OPENSSL_cleanse(phrase, (size_t) size);
	return (int) strcspn(phrase, "\r\n");
}

/*
 * Does the library call our connect()?  It would not if it was linked so that
 * it finds its own symbols, or those of the C library, first.  It is asked to
 * connect to where nobody listens.
 */
static bool
is_ours(void)
{
	zhandle_t  *zh = zookeeper_init("127.0.0.1:1", NULL, 1000, NULL, NULL,
									ZOO_NO_LOG_CLIENTENV);
	struct timeval timeout;
	int			fd;
	int			interest;
	bool		is_called;

	if (zh == NULL)
		return false;
	nproved = 0;
	zookeeper_interest(zh, &fd, &interest, &timeout);
	is_called = nproved == 1;
	nproved = -1;
	zookeeper_close(zh);
	return is_called;
}

/* ---------------------------------------------------------------------
 * Lines
 * ---------------------------------------------------------------------
 */

/*
 * What connect() does with TLS: connect a copy of the socket, and put another
 * one in its place that nothing leaves.  The result is always that of a socket
 * that is being connected: what has failed shows as the end of its input.
 */
static int
make_line(int fd, const struct sockaddr *address, socklen_t length)
{
	int			instead = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	Line	   *line;

	if (fd >= FDS_MAX)
	{
		close(instead);
		errno = ENOBUFS;
		return -1;
	}
	lines[fd] = line = program_need(calloc(1, sizeof(*line)));
	line->outer = fcntl(fd, F_DUPFD_CLOEXEC, 0);

	/* IPv6 has its port where IPv4 has it */
	(void) servers_format_address(line->address, address,
								  ntohs(((const struct sockaddr_in *) address)->sin_port));
	for (int i = 0; i < nexpected && line->host[0] == '\0'; i++)
		if (strcmp(expected[i].address, line->address) == 0)
			strcpy(line->host, expected[i].host);
	snprintf(line->error, TLS_WHY_SIZE, "Server \"%s\" did not answer in the TLS handshake in time",
			 line->address);
	if (line->outer < 0 || dup3(instead, fd, O_CLOEXEC) < 0 ||
		line->host[0] == '\0')
		fail(line, EADDRNOTAVAIL);
	else if (syscall(SYS_connect, line->outer, address, length) != 0 &&
			 errno != EINPROGRESS)
		fail(line, errno);
	else if (!begin_handshake(line))
		fail(line, ENOMEM);
	close(instead);
	errno = EINPROGRESS;
	return -1;
}

/*
 * The files may have been replaced since the connection before.  If they are
 * no good now, those that were are used.
 */
static bool
begin_handshake(Line *line)
{
	SSL_CTX    *newer = state_of_files() != files_read ? load(stale) : NULL;

	if (newer != NULL)
	{
		SSL_CTX_free(context);	/* the lines have counted it */
		context = newer;
	}
	line->ssl = SSL_new(context);
	if (line->ssl == NULL || SSL_set_fd(line->ssl, line->outer) != 1)
		return false;
	SSL_set_app_data(line->ssl, line);
	SSL_set_hostflags(line->ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
	return servers_is_numeric(line->host) ?
		X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(line->ssl),
									  line->host) == 1 :
		SSL_set1_host(line->ssl, line->host) == 1 &&
		SSL_set_tlsext_host_name(line->ssl, line->host) == 1;
}

/* NULL: there is none. */
static Line *
line_of(int fd)
{
	return fd >= 0 && fd < FDS_MAX ? lines[fd] : NULL;
}

/* ---------------------------------------------------------------------
 * Moving
 * ---------------------------------------------------------------------
 */

/* Go on with the handshake, and send what has been left for that. */
static void
move(Line *line)
{
	int			rc = 1;

	if (line->is_over)
		return;
	ERR_clear_error();
	if (!line->is_ready)
	{
		rc = SSL_connect(line->ssl);
		line->is_ready = line->has_more = rc == 1;
		if (rc == 1)
			line->error[0] = '\0';
	}
	if (line->is_ready && line->nleaving > 0)
	{
		rc = SSL_write(line->ssl, line->leaving, (int) line->nleaving);
		if (rc > 0)				/* all: it fits into one record */
			line->nleaving = 0;
	}
	line->is_stuck = rc <= 0 && SSL_want_write(line->ssl);
	if (rc <= 0)
		note_refusal(line, rc);
}

/* Which of these events has its caller now, if the connection has those? */
static short
find_ready(const Line *line, short events, short revents)
{
	bool		can_read = line->is_ready && (line->has_more || revents != 0);
	bool		can_write = line->nleaving < BUFFER_SIZE && !line->is_stuck;

	return line->is_over ? events :
		events & ((can_read ? POLLIN : 0) | (can_write ? POLLOUT : 0));
}

/* ---------------------------------------------------------------------
 * Failures
 * ---------------------------------------------------------------------
 */

/* OpenSSL did not do it.  Does that mean that it will not do it either? */
static void
note_refusal(Line *line, int rc)
{
	int			system_error = errno;
	int			kind = SSL_get_error(line->ssl, rc);

	if (kind != SSL_ERROR_WANT_READ && kind != SSL_ERROR_WANT_WRITE)
		fail(line, kind == SSL_ERROR_SYSCALL ? system_error : 0);
}

/*
 * The line is over; say why, unless that is known.  Once a server has
 * answered it may end the connection as it likes.
 */
static void
fail(Line *line, int system_error)
{
	unsigned long code = ERR_peek_error();
	const char *reason = code != 0 ? ERR_reason_error_string(code) : NULL;
	bool		is_end = code == 0 || (reason != NULL &&
									   strstr(reason, "unexpected eof") != NULL);
	const X509 *own = line->ssl != NULL ? SSL_get_certificate(line->ssl) : NULL;
	size_t		length;

	/* a server that has too many connections takes one, and closes it */
	bool		is_closed_by_server = system_error == EPIPE ||
		system_error == ECONNRESET;

	line->is_over = true;
	if (line->is_untrusted || (line->received_at != 0 && is_end))
		return;
	if (system_error != 0 && code == 0 && !is_closed_by_server)
		snprintf(line->error, TLS_WHY_SIZE, "Could not connect to server \"%s\": %s",
				 line->address, strerror(system_error));
	else if (is_end)
		snprintf(line->error, TLS_WHY_SIZE, "Server \"%s\" closed the connection %s the TLS handshake",
				 line->address, line->is_ready ? "right after" : "in");
	else
		snprintf(line->error, TLS_WHY_SIZE, "TLS with server \"%s\" failed: %s",
				 line->address, reason != NULL ? reason : "OpenSSL does not say why");

	/* the server may know that, and does not say so */
	length = strlen(line->error);
	if (own != NULL && (code != 0 || system_error == 0 || is_closed_by_server) &&
		(X509_cmp_current_time(X509_get0_notBefore(own)) > 0 ||
		 X509_cmp_current_time(X509_get0_notAfter(own)) < 0))
		snprintf(line->error + length, TLS_WHY_SIZE - length,
				 "; the certificate of \"zklock.ssl_cert_file\" has expired, or is not valid yet");
}

/*
 * OpenSSL has verified a certificate of the server's chain.  This has no word
 * in it, but keeps what is wrong: as a line of ASCII, for the server may have
 * written some of it.
 */
static int
note_verdict(int is_good, X509_STORE_CTX *store)
{
	SSL		   *ssl = X509_STORE_CTX_get_ex_data(store,
												 SSL_get_ex_data_X509_STORE_CTX_idx());
	Line	   *line = SSL_get_app_data(ssl);
	X509	   *certificate = X509_STORE_CTX_get_current_cert(store);
	int			error = X509_STORE_CTX_get_error(store);
	int			names;
	BIO		   *text = is_good || line->is_untrusted || certificate == NULL ?
		NULL : BIO_new(BIO_s_mem());

	if (text == NULL)
		return is_good;
	BIO_printf(text, "The certificate of server \"%s\" is not ", line->address);
	if (error == X509_V_ERR_HOSTNAME_MISMATCH ||
		error == X509_V_ERR_IP_ADDRESS_MISMATCH)
		BIO_printf(text, "for \"%s\"", line->host);
	else
		BIO_printf(text, "good: %s", X509_verify_cert_error_string(error));
	BIO_printf(text, "; it is that of ");
	X509_NAME_print_ex(text, X509_get_subject_name(certificate), 0,
					   XN_FLAG_RFC2253);
	BIO_printf(text, ", issued by ");
	X509_NAME_print_ex(text, X509_get_issuer_name(certificate), 0,
					   XN_FLAG_RFC2253);
	BIO_printf(text, ", valid from ");
	ASN1_TIME_print(text, X509_get0_notBefore(certificate));
	BIO_printf(text, " until ");
	ASN1_TIME_print(text, X509_get0_notAfter(certificate));
	names = X509_get_ext_by_NID(certificate, NID_subject_alt_name, -1);
	if (names >= 0)
		BIO_printf(text, ", for ");	/* last: there may be too many */
	if (names >= 0)
		X509V3_EXT_print(text, X509_get_ext(certificate, names), 0, 0);
	read_text(text, line->error, TLS_WHY_SIZE);
	line->is_untrusted = true;
	return is_good;
}

/* As seconds since 1970. */
static int64_t
expiry_of(const X509 *certificate)
{
	struct tm	date = {0};

	ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &date);
	return (int64_t) timegm(&date);
}

/* All that is in it, as far as there is room, and free it. */
static void
read_text(BIO *text, char *to, size_t size)
{
	memset(to, 0, size);
	BIO_read(text, to, (int) size - 1);
	for (char *at = to; *at != '\0'; at++)
		if (*at < ' ' || *at > '~')
			*at = '?';
	BIO_free(text);
}
