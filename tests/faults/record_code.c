/* record_code COMMAND...: runs it and appends "RANK CODE" to the file that PP_CODES names, then ends with its code (128
 * + the signal that ended it). If PP_SAID names a file, the command's stderr is appended to it: launchers may drop what
 * is said last.
 *
 * Launchers kill all processes at the first bad exit. The command and what records its code are out of reach of their
 * SIGKILL, in a session of their own, so what is recorded is how each rank ends by itself; other signals are passed on.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *own_rank(void)
{
	const char *rank = getenv("OMPI_COMM_WORLD_RANK");
	if (!rank)
		rank = getenv("PMI_RANK");
	return rank ? rank : "0";
}

static int code_of(int status)
{
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* In a session of its own: run the command, record its end. */
static int record(char **command, const char *path, const sigset_t *before)
{
	int status = 0, file = open(path, O_WRONLY | O_APPEND | O_CREAT, 0666);
	pid_t child = fork();
	if (child == 0) {
		sigprocmask(SIG_SETMASK, before, NULL);
		const char *said = getenv("PP_SAID");
		if (said && dup2(open(said, O_WRONLY | O_APPEND | O_CREAT, 0666), STDERR_FILENO) < 0)
			_exit(126);
		execv(command[0], command);
		_exit(127);
	}
	if (file < 0 || child < 0 || waitpid(child, &status, 0) != child)
		return 126;
	char line[64];
	int length = snprintf(line, sizeof line, "%s %d\n", own_rank(), code_of(status));
	return write(file, line, (size_t)length) == length ? code_of(status) : 126;
}

int main(int argc, char **argv)
{
	const char *path = getenv("PP_CODES");
	if (argc < 2 || !path)
		return 2;
	sigset_t all, before;
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &before);
	pid_t recorder = fork();
	if (recorder == 0)
		return setsid() < 0 ? 126 : record(argv + 1, path, &before);
	for (int status = 0;;) {
		int signal = sigwaitinfo(&all, NULL);
		if (signal == SIGCHLD && waitpid(recorder, &status, WNOHANG) == recorder)
			return code_of(status);
		if (signal == SIGTERM || signal == SIGINT || signal == SIGUSR1)
			kill(-recorder, signal);
	}
}
