/*
 * report_path.h
 *	  Each file of a build under gcc's sanitizers begins with it: what that of undefined
 *	  behaviour says goes where UBSAN_OPTIONS has it, also beside that of addresses.
 *
 * Both have a function that sets the path, of the same name, and with both of them
 * loaded either sets that of addresses.  The session's program has no terminal, so what
 * the other one says would be lost.
 */
#ifndef REPORT_PATH_H
#define REPORT_PATH_H

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

__attribute__((constructor)) static void
set_report_path(void)
{
	static char path[1024];
	const char *options = getenv("UBSAN_OPTIONS");
	const char *found = options != NULL ? strstr(options, "log_path=") : NULL;
	void	   *library = dlopen("libubsan.so.1", RTLD_LAZY | RTLD_NOLOAD);
	void		(*set) (const char *) = library == NULL ? NULL :
		(void (*) (const char *)) dlsym(library, "__sanitizer_set_report_path");
	size_t		length;

	if (found == NULL || set == NULL)
		return;
	found += strlen("log_path=");
	length = strcspn(found, ":");
	if (length >= sizeof(path))
		return;
	memcpy(path, found, length);
	set(path);
}

#endif							/* REPORT_PATH_H */
