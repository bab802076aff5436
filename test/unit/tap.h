/*-------------------------------------------------------------------------
 *
 * tap.h
 *	  A producer of TAP, the Test Anything Protocol, for the unit tests: each
 *	  check is a line on stdout that prove(1) reads.
 *
 * A test program calls ok(), is_int() and is_str() as often as it likes and
 * ends with "return done_testing();".  The expected value stands first.  Each
 * check returns whether it passed; a failed one says on stderr what was
 * expected.  For one thread.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_TAP_H
#define ZKLOCK_TAP_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* A program need not use all of the functions. */
#define TAP_FUNCTION(format_arg) \
	__attribute__((unused, format(printf, format_arg, format_arg + 1))) static

/* The checks made so far, and how many of them failed. */
static int	tap_ntests = 0;
static int	tap_nfailed = 0;

/*
 * Print one line for a check.  '#' would start a directive and a newline
 * would end the line, so neither stands in the description.
 */
static void __attribute__((format(printf, 2, 0)))
tap_report(bool passed, const char *format, va_list args)
{
	char		description[512];

	vsnprintf(description, sizeof(description), format, args);
	for (char *c = description; *c != '\0'; c++)
	{
		if (*c == '#' || *c == '\n')
			*c = ' ';
	}

	tap_ntests++;
	if (!passed)
		tap_nfailed++;
	printf("%s %d - %s\n", passed ? "ok" : "not ok", tap_ntests, description);
	fflush(stdout);
	if (!passed)
		fprintf(stderr, "#   failed: %s\n", description);
}

/* Check that a condition holds. */
TAP_FUNCTION(2) bool
ok(bool condition, const char *format,...)
{
	va_list		args;

	va_start(args, format);
	tap_report(condition, format, args);
	va_end(args);
	return condition;
}

/* Check that two integers are equal. */
TAP_FUNCTION(3) bool
is_int(long long expected, long long got, const char *format,...)
{
	bool		passed = expected == got;
	va_list		args;

	va_start(args, format);
	tap_report(passed, format, args);
	va_end(args);
	if (!passed)
		fprintf(stderr, "#   expected: %lld\n#        got: %lld\n",
				expected, got);
	return passed;
}

/* Check that two strings are equal; NULL equals only NULL. */
TAP_FUNCTION(3) bool
is_str(const char *expected, const char *got, const char *format,...)
{
	bool		passed = expected == NULL || got == NULL ? expected == got :
		strcmp(expected, got) == 0;
	va_list		args;

	va_start(args, format);
	tap_report(passed, format, args);
	va_end(args);
	if (!passed)
		fprintf(stderr, "#   expected: \"%s\"\n#        got: \"%s\"\n",
				expected ? expected : "(null)", got ? got : "(null)");
	return passed;
}

/* Print a remark, one line, that is not a check. */
TAP_FUNCTION(1) void
note(const char *format,...)
{
	va_list		args;

	printf("# ");
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
	fflush(stdout);
}

/*
 * Print the plan, after the last check.  The result is the exit status of the
 * program: 0 if there were checks and all passed, else 1.
 */
static int	__attribute__((unused))
done_testing(void)
{
	printf("1..%d\n", tap_ntests);
	if (tap_nfailed > 0)
		fprintf(stderr, "# %d of %d checks failed\n", tap_nfailed, tap_ntests);
	return tap_ntests > 0 && tap_nfailed == 0 ? 0 : 1;
}

#endif							/* ZKLOCK_TAP_H */
