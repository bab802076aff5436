/*-------------------------------------------------------------------------
 *
 * program_openssl.c
 *	  A connection with TLS, by OpenSSL.
 *
 * Hosts are expected, and sockets connected, by program_tls.c.
 *
 *-------------------------------------------------------------------------
 */
#include "program_openssl.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

/* What TLS takes at a time, and as much as one of its records has. */
#define BUFFER_SIZE (16 * 1024)

/*
 * What runs the passphrase command, for so many seconds at most.  A process
 * that goes on behind it has no pipe of ours.
 */
#define RUN_COMMAND "exec timeout -s KILL %d sh -c 'said=$(eval \"$COMMAND\") && printf %%s \"$said\"'"

/* What the text of line_begin() holds; the first are files. */
typedef enum Setting
{
	CA_FILE,
	CERT_FILE,
	KEY_FILE,
	CRL_FILE,
	MIN_VERSION,
	PASSPHRASE_COMMAND
} Setting;

/* What lines are opened with. */
typedef struct Setup
{
	char	   *copy;			/* of what line_begin() got, malloc'ed: where
								 * the settings are */
	const char *settings[PASSPHRASE_COMMAND + 1];
	uint64_t	files_read;		/* their state when they were read last */
	SSL_CTX    *context;		/* NULL: no line is opened */
	char		stale[TLS_WHY_SIZE];	/* why the files of before are used, or "" */
} Setup;

struct TlsLine
{
	int			socket;			/* the TCP connection, or -1 */
	SSL		   *ssl;			/* NULL: it has failed before */
	char		host[SERVERS_HOST_MAX + 1]; /* whose certificate it must be */
	char		address[SERVERS_ADDRESS_SIZE];
	bool		is_ready;		/* the handshake is done */
	bool		is_untrusted;	/* its certificate was found no good */
	bool		is_over;		/* nothing comes or goes any more */
	bool		is_stuck;		/* OpenSSL waits until it can write */
	bool		has_more;		/* OpenSSL may have more than it was asked for */
	bool		is_answered;	/* something was received */
	char		error[TLS_WHY_SIZE];
	size_t		nleaving;		/* bytes that OpenSSL has not taken yet */
	char		leaving[BUFFER_SIZE];
};

/*
 * What connections are made with.  It is static for there is one configuration
 * at a time in the process, and the functions are called as the system's are,
 * without a context.
 */
static struct
{
	Setup		current;
	const char *fault;			/* why a file is no good; NULL: it may be */
	int			patience_s;		/* how long the passphrase command may take */
}			setups;

static void free_setup(Setup *setup);
static SSL_CTX *make_context(Setup *setup, char why[TLS_WHY_SIZE]);
static uint64_t state_of_files(const Setup *setup);
static bool load_file(SSL_CTX *made, Setting file, const char *path,
					  char why[TLS_WHY_SIZE]);
static int	ask_passphrase(char *phrase, int size, int is_writing,
						   void *command);
static pid_t start_command(const char *command, int *said);
static const char *complaint_of_key(const struct stat *status);
static bool begin_handshake(TlsLine *line, bool is_numeric);
static void move_line(TlsLine *line);
static short find_ready(const TlsLine *line, short events, short revents);
static void note_tls_refusal(TlsLine *line, int rc);
static void fail_line(TlsLine *line, int system_error);
static int	note_verdict(int is_good, X509_STORE_CTX *store);
static int64_t expiry_of(const X509 *certificate);
static void read_text(BIO *text, char *to, size_t size);

/* ---------------------------------------------------------------------
 * Beginning
 * ---------------------------------------------------------------------
 */

/* On failure all stays as it was. */
bool
line_begin(const char *text, int seconds, char why[TLS_WHY_SIZE])
{
	Setup		setup = {.copy = strdup(text)};
	char	   *rest = setup.copy;

	for (int i = CA_FILE; i <= PASSPHRASE_COMMAND; i++)
	{
		setup.settings[i] = "";
		if (rest != NULL)
			setup.settings[i] = strsep(&rest, i < PASSPHRASE_COMMAND ? "\n" : "");
	}
	setups.patience_s = seconds;
	if (setup.settings[CA_FILE][0] == '\0')
		snprintf(why, TLS_WHY_SIZE, "\"zklock.ssl\" is on, and \"zklock.ssl_ca_file\" names no file by which servers could be verified");
	else if (!setup.settings[CERT_FILE][0] != !setup.settings[KEY_FILE][0])
		snprintf(why, TLS_WHY_SIZE, "Of \"zklock.ssl_cert_file\" and \"zklock.ssl_key_file\" only one is set");
	else
		setup.context = make_context(&setup, why);
	if (setup.context == NULL)
	{
		free_setup(&setup);
		return false;
	}
	free_setup(&setups.current);
	setups.current = setup;
	return true;
}

/* The lines have counted the context that is freed. */
static void
free_setup(Setup *setup)
{
	SSL_CTX_free(setup->context);
	free(setup->copy);
}

/* A context with all that the settings name; NULL with a reason. */
static SSL_CTX *
make_context(Setup *setup, char why[TLS_WHY_SIZE])
{
	SSL_CTX    *made = SSL_CTX_new(TLS_client_method());

	snprintf(why, TLS_WHY_SIZE, "OpenSSL could not be started");
	if (made == NULL)
		return NULL;
	why[0] = '\0';
	SSL_CTX_set_read_ahead(made, 1);
	SSL_CTX_set_min_proto_version(made,
								  setup->settings[MIN_VERSION][0] == '3' ?
								  TLS1_3_VERSION : TLS1_2_VERSION);
	SSL_CTX_set_verify(made, SSL_VERIFY_PEER, note_verdict);
	SSL_CTX_set_default_passwd_cb(made, ask_passphrase);
	SSL_CTX_set_default_passwd_cb_userdata(made, (void *) setup->settings[PASSPHRASE_COMMAND]);
	setup->files_read = state_of_files(setup);
	for (int i = CA_FILE; i <= CRL_FILE; i++)
		if (setup->settings[i][0] != '\0' &&
			!load_file(made, i, setup->settings[i], why))
		{
			SSL_CTX_free(made);
			return NULL;
		}
	return made;
}

/* Another number whenever one of the files is replaced or changed. */
static uint64_t
state_of_files(const Setup *setup)
{
	uint64_t	state = 0;
	struct stat file;

	for (int i = CA_FILE; i <= CRL_FILE; i++)
		if (stat(setup->settings[i], &file) == 0)
			state = state * 31 + file.st_ino +
				(uint64_t) (file.st_ctim.tv_sec * 1000000000 + file.st_ctim.tv_nsec);
	return state;
}

/* Not a FIFO, which would hold us up. */
static bool
load_file(SSL_CTX *made, Setting file, const char *path,
		  char why[TLS_WHY_SIZE])
{
	struct stat status;
	int			rc = 0;

	ERR_clear_error();
	setups.fault = NULL;
	if (stat(path, &status) != 0)
		setups.fault = strerror(errno);
	else if (!S_ISREG(status.st_mode))
		setups.fault = "not a regular file";
	else if (file == CA_FILE)
		rc = SSL_CTX_load_verify_locations(made, path, NULL);
	else if (file == CERT_FILE)
		rc = SSL_CTX_use_certificate_chain_file(made, path);
	else if (file == CRL_FILE)
		rc = SSL_CTX_load_verify_locations(made, path, NULL) == 1 &&
			X509_STORE_set_flags(SSL_CTX_get_cert_store(made),
								 X509_V_FLAG_CRL_CHECK | X509_V_FLAG_CRL_CHECK_ALL);
	else if ((setups.fault = complaint_of_key(&status)) == NULL)
		rc = SSL_CTX_use_PrivateKey_file(made, path, SSL_FILETYPE_PEM);
	if (setups.fault == NULL && ERR_SYSTEM_ERROR(ERR_peek_error()))
		setups.fault = strerror(ERR_GET_REASON(ERR_peek_error()));
	if (setups.fault == NULL)
		setups.fault = ERR_reason_error_string(ERR_peek_error());
	if (rc != 1)
		snprintf(why, TLS_WHY_SIZE, "Could not load file \"%.250s\": %s", path,
				 setups.fault != NULL ? setups.fault : "it cannot be read");
	return rc == 1;
}

/* NULL: nobody else can read it. */
static const char *
complaint_of_key(const struct stat *status)
{
	mode_t		others = S_IRWXG | S_IRWXO;

	if (status->st_uid == 0)
		others = S_IWGRP | S_IXGRP | S_IRWXO;
	else if (status->st_uid != geteuid())
		return "it must be owned by the database user or root";
	if ((status->st_mode & others) == 0)
		return NULL;
	return "it has group or world access; it must have permissions u=rw (0600) or less if owned by the database user, or u=rw,g=r (0640) or less if owned by root";
}

/*
 * The passphrase of the key, as PostgreSQL asks for that of its own: the first
 * line that the command says.  PostgreSQL's run_ssl_passphrase_command() is no
 * help: it runs the server's own, for as long as that takes, and in a backend.
 * OpenSSL clears what is returned.  It may ask again if it got nothing.
 */
static int
ask_passphrase(char *phrase, int size, int is_writing, void *command)
{
	int			said;
	int			length = 0;
	int			status = -1;
	ssize_t		received;
	pid_t		pid;

	if (setups.fault != NULL)
		return -1;
	setups.fault = "it needs a passphrase, and \"zklock.ssl_passphrase_command\" is empty, failed or took too long";
	pid = start_command(command, &said);
	if (pid < 0)
		return -1;
	while (length < size - 1)
	{
		received = read(said, phrase + length, (size_t) (size - 1 - length));
		if (received == 0 || (received < 0 && errno != EINTR))
			break;
		length += received > 0 ? (int) received : 0;
	}
	phrase[length] = '\0';
	close(said);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (status == 0 && phrase[0] != '\0')
		setups.fault = "what \"zklock.ssl_passphrase_command\" says is not its passphrase";
	else
		OPENSSL_cleanse(phrase, (size_t) size);
	return (int) strcspn(phrase, "\r\n");
}

/*
 * In a shell, as PostgreSQL runs its own: with HOME and PATH of the server
 * (channel.c), and with signals as they are for a new program.  It has
 * standard input and error, which lead nowhere, and its output leads to said:
 * nothing else, neither the channel nor a connection, nor the file of the key,
 * which OpenSSL is reading.  Result: its pid, -1 if it could not be started.
 */
static pid_t
start_command(const char *command, int *said)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t	signals;
	char		run[sizeof(RUN_COMMAND)];
	char	   *arguments[] = {"sh", "-c", run, NULL};
	int			ends[2];
	pid_t		pid;
	int			error;

	if (pipe2(ends, O_CLOEXEC) != 0)
		return -1;
	setenv("COMMAND", command, 1);
	snprintf(run, sizeof(run), RUN_COMMAND, setups.patience_s);
	posix_spawnattr_init(&attributes);
	posix_spawn_file_actions_init(&actions);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK |
							 POSIX_SPAWN_SETSIGDEF);
	sigemptyset(&signals);
	posix_spawnattr_setsigmask(&attributes, &signals);
	sigfillset(&signals);
	posix_spawnattr_setsigdefault(&attributes, &signals);
	error = posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
	if (error == 0)
		error = posix_spawn_file_actions_addclosefrom_np(&actions,
														 STDERR_FILENO + 1);
	if (error == 0)
		error = posix_spawn(&pid, "/bin/sh", &actions, &attributes, arguments,
							environ);
	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&attributes);
	unsetenv("COMMAND");
	close(ends[1]);
	if (error != 0)
		close(ends[0]);
	*said = ends[0];
	return error == 0 ? pid : -1;
}

/* ---------------------------------------------------------------------
 * Lines
 * ---------------------------------------------------------------------
 */

TlsLine *
line_open(int socket, const char *address, const char *host, bool is_numeric,
		  int error)
{
	TlsLine    *line = calloc(1, sizeof(*line));

	if (line == NULL)
		return NULL;
	line->socket = socket;
	snprintf(line->address, sizeof(line->address), "%s", address);
	snprintf(line->host, sizeof(line->host), "%s", host);
	snprintf(line->error, TLS_WHY_SIZE, "Server \"%s\" did not answer in the TLS handshake in time",
			 line->address);
	if (error != 0)
		fail_line(line, error);
	else if (setups.current.context == NULL ||
			 !begin_handshake(line, is_numeric))
		fail_line(line, ENOMEM);
	return line;
}

/*
 * The files may have been replaced since the connection before.  If they are
 * no good now, those that were are used.
 */
static bool
begin_handshake(TlsLine *line, bool is_numeric)
{
	SSL_CTX    *newer = NULL;

	if (state_of_files(&setups.current) != setups.current.files_read)
	{
		setups.patience_s = TLS_PATIENCE_CONNECTED_S;
		newer = make_context(&setups.current, setups.current.stale);
	}
	if (newer != NULL)
	{
		SSL_CTX_free(setups.current.context);	/* the lines have counted it */
		setups.current.context = newer;
	}
	line->ssl = SSL_new(setups.current.context);
	if (line->ssl == NULL || SSL_set_fd(line->ssl, line->socket) != 1)
		return false;
	SSL_set_app_data(line->ssl, line);
	SSL_set_hostflags(line->ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS |
					  X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
	return is_numeric ?
		X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(line->ssl),
									  line->host) == 1 :
		SSL_set1_host(line->ssl, line->host) == 1 &&
		SSL_set_tlsext_host_name(line->ssl, line->host) == 1;
}

void
line_close(TlsLine *line)
{
	move_line(line);
	if (line->is_ready && !line->is_over)
		SSL_shutdown(line->ssl);	/* as far as it goes now */
	SSL_free(line->ssl);
	close(line->socket);		/* or -1 */
	explicit_bzero(line, sizeof(*line));
	free(line);
}

ssize_t
line_send(TlsLine *line, const void *bytes, size_t length)
{
	if (line->nleaving + length > BUFFER_SIZE)
		move_line(line);
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
line_receive(TlsLine *line, void *bytes, size_t size, bool is_peek)
{
	int			length;

	if (line->is_ready && !line->is_over)
	{
		ERR_clear_error();
		if (is_peek)
			length = SSL_peek(line->ssl, bytes, (int) size);
		else
			length = SSL_read(line->ssl, bytes, (int) size);
		line->has_more = length > 0 && SSL_has_pending(line->ssl);
		if (length > 0)
		{
			line->is_answered = true;
			return length;
		}
		note_tls_refusal(line, length);
	}
	errno = EAGAIN;
	return line->is_over ? 0 : -1;
}

short
line_before_poll(TlsLine *line, short events, short *awaited)
{
	move_line(line);
	*awaited = line->is_stuck ? POLLIN | POLLOUT : POLLIN;
	return find_ready(line, events, 0);
}

short
line_after_poll(TlsLine *line, short events, short revents)
{
	if (revents != 0 && !line->is_ready)
		move_line(line);
	return find_ready(line, events, revents);
}

const char *
line_error(const TlsLine *line)
{
	return line->error;
}

const char *
line_describe(const TlsLine *line, char *text, size_t size)
{
	STACK_OF(X509) *chain = NULL;
	const X509 *own;
	int64_t		expiry = INT64_MAX;
	int64_t		own_expiry = 0;
	BIO		   *subject = NULL;
	int			length;

	if (line->is_ready)
		chain = SSL_get0_verified_chain(line->ssl);
	if (chain != NULL)
		subject = BIO_new(BIO_s_mem());
	if (subject == NULL)
		return setups.current.stale;
	own = SSL_get_certificate(line->ssl);
	if (own != NULL)
		own_expiry = expiry_of(own);
	for (int i = 0; i < sk_X509_num(chain); i++)
		if (expiry_of(sk_X509_value(chain, i)) < expiry)
			expiry = expiry_of(sk_X509_value(chain, i));
	length = snprintf(text, size, "%s %s %lld %lld ", SSL_get_version(line->ssl),
					  SSL_get_cipher(line->ssl), (long long) expiry,
					  (long long) own_expiry);
	X509_NAME_print_ex(subject, X509_get_subject_name(sk_X509_value(chain, 0)),
					   0, XN_FLAG_RFC2253);
	read_text(subject, text + length, size - (size_t) length);
	return setups.current.stale;
}

/* ---------------------------------------------------------------------
 * Moving
 * ---------------------------------------------------------------------
 */

/* Go on with the handshake, and send what has been left for that. */
static void
move_line(TlsLine *line)
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
		note_tls_refusal(line, rc);
}

/* Which of these events has its caller now, if the connection has those? */
static short
find_ready(const TlsLine *line, short events, short revents)
{
	bool		can_read = line->is_ready && (line->has_more || revents != 0);
	bool		can_write = line->nleaving < BUFFER_SIZE && !line->is_stuck;

	if (line->is_over)
		return events;
	if (!can_read)
		events &= ~POLLIN;
	if (!can_write)
		events &= ~POLLOUT;
	return events & (POLLIN | POLLOUT);
}

/* ---------------------------------------------------------------------
 * Failures
 * ---------------------------------------------------------------------
 */

/* OpenSSL did not do it.  Does that mean that it will not do it either? */
static void
note_tls_refusal(TlsLine *line, int rc)
{
	int			system_error = errno;
	int			kind = SSL_get_error(line->ssl, rc);

	if (kind != SSL_ERROR_WANT_READ && kind != SSL_ERROR_WANT_WRITE)
		fail_line(line, kind == SSL_ERROR_SYSCALL ? system_error : 0);
}

/*
 * The line is over; say why, unless that is known.  Once a server has
 * answered it may end the connection as it likes.
 */
static void
fail_line(TlsLine *line, int system_error)
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
	if (line->is_untrusted || (line->is_answered && is_end))
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
	TlsLine    *line = SSL_get_app_data(ssl);
	X509	   *certificate = X509_STORE_CTX_get_current_cert(store);
	int			error = X509_STORE_CTX_get_error(store);
	int			names;
	BIO		   *text = is_good || line->is_untrusted || certificate == NULL ?
		NULL : BIO_new(BIO_s_mem());

	if (text == NULL)
		return is_good;
	names = X509_get_ext_by_NID(certificate, NID_subject_alt_name, -1);
	BIO_printf(text, "The certificate of server \"%s\" is not ", line->address);
	if (error == X509_V_ERR_HOSTNAME_MISMATCH ||
		error == X509_V_ERR_IP_ADDRESS_MISMATCH)
		BIO_printf(text, "for \"%s\"%s", line->host,
				   names < 0 ? ", because it has no subjectAltName" : "");
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
