/*
 * no_interrupts.c
 *		No process interrupts another one by SIGINT.
 */
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

int
kill(pid_t pid, int signal)
{
	return signal == SIGINT ? 0 : (int) syscall(SYS_kill, pid, signal);
}
