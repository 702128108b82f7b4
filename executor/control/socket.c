/* Opening the connections of the star.
 *
 * Rank 0 listens on a port that the system picks and tells the others, through the start exchange, the port, a random
 * token and the addresses of its machine; they try one after the other. Who does not know the token is turned away. */
#include "frame.h"

#include "executor/watch.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BACKLOG = 1024 };

static const uint64_t one_try = 3000000000; /* ns for one address */

/* ---- rank 0 ---------------------------------------------------------------------------------- */

static bool make_token(unsigned char token[PP_TOKEN_BYTES], struct pp_status *status)
{
	FILE *file = fopen("/dev/urandom", "rb");
	bool ok = file && fread(token, 1, PP_TOKEN_BYTES, file) == PP_TOKEN_BYTES;
	if (file)
		fclose(file);
	return ok || pp_fail(status, PP_EXIT_ENVIRONMENT, "cannot read /dev/urandom for the control star");
}

static void add_address(struct pp_star_address *address, const char *text)
{
	for (uint32_t i = 0; i < address->count; i++)
		if (strcmp(address->addresses[i], text) == 0)
			return;
	if (address->count < PP_ADDRESSES)
		snprintf(address->addresses[address->count++], PP_ADDRESS_BYTES, "%.*s", PP_ADDRESS_BYTES - 1, text);
}

/* Addresses of the machine's interfaces: other machines cannot use the loopback's, so it comes last. */
static void add_interfaces(struct pp_star_address *address)
{
	struct ifaddrs *all;
	if (getifaddrs(&all) != 0)
		return;
	for (const struct ifaddrs *one = all; one; one = one->ifa_next) {
		char text[INET_ADDRSTRLEN];
		if (!one->ifa_addr || one->ifa_addr->sa_family != AF_INET)
			continue;
		struct sockaddr_in inet;
		memcpy(&inet, one->ifa_addr, sizeof inet);
		if (inet_ntop(AF_INET, &inet.sin_addr, text, sizeof text) && strncmp(text, "127.", 4) != 0)
			add_address(address, text);
	}
	freeifaddrs(all);
}

static int listen_on(const struct sockaddr_in *where, uint32_t *port)
{
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in got;
	socklen_t length = sizeof got;
	if (listener >= 0 && bind(listener, (const struct sockaddr *)where, sizeof *where) == 0 &&
	    listen(listener, BACKLOG) == 0 && getsockname(listener, (struct sockaddr *)&got, &length) == 0 &&
	    fcntl(listener, F_SETFL, O_NONBLOCK) == 0 && fcntl(listener, F_SETFD, FD_CLOEXEC) == 0) {
		*port = ntohs(got.sin_port);
		return listener;
	}
	if (listener >= 0)
		close(listener);
	return -1;
}

int pp_star_listen(struct pp_star_address *address, bool alone, struct pp_status *status)
{
	memset(address, 0, sizeof *address);
	if (!make_token(address->token, status))
		return -1;
	struct sockaddr_in where = {.sin_family = AF_INET};
	where.sin_addr.s_addr = htonl(alone ? INADDR_LOOPBACK : INADDR_ANY);
	int listener = listen_on(&where, &address->port);
	if (listener < 0) {
		pp_fail(status, PP_EXIT_ENVIRONMENT, "cannot listen for the control star: %s", strerror(errno));
		return -1;
	}
	const char *given = getenv("PP_CONTROL_ADDRESS");
	if (given && given[0])
		add_address(address, given);
	if (!alone)
		add_interfaces(address);
	add_address(address, "127.0.0.1");
	return listener;
}

static void prepare(int connection)
{
	int on = 1;
	setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	fcntl(connection, F_SETFL, O_NONBLOCK);
	fcntl(connection, F_SETFD, FD_CLOEXEC);
}

int pp_star_accept(int listener)
{
	int connection = accept(listener, NULL, NULL);
	if (connection >= 0)
		prepare(connection);
	return connection;
}

/* ---- the others ------------------------------------------------------------------------------ */

/* Poll until `events` or the deadline. */
static bool ready(int connection, short events, uint64_t deadline)
{
	for (;;) {
		uint64_t now = pp_clock();
		struct pollfd one = {.fd = connection, .events = events};
		if (now >= deadline)
			return false;
		int left = (int)((deadline - now) / 1000000) + 1;
		if (poll(&one, 1, left) > 0)
			return true;
	}
}

static bool reach(const char *host, uint32_t port, uint64_t deadline, struct pp_wire *wire, char reason[128])
{
	char service[16];
	snprintf(service, sizeof service, "%" PRIu32, port);
	struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found = NULL;
	int error = getaddrinfo(host, service, &hints, &found);
	if (error != 0) {
		snprintf(reason, 128, "%.100s", gai_strerror(error));
		return false;
	}
	int connection = socket(AF_INET, SOCK_STREAM, 0), result = -1;
	socklen_t length = sizeof error;
	if (connection >= 0) {
		prepare(connection);
		result = connect(connection, found->ai_addr, found->ai_addrlen);
		error = result == 0 ? 0 : errno;
		if (error == EINPROGRESS)
			error = ready(connection, POLLOUT, deadline)
			            ? getsockopt(connection, SOL_SOCKET, SO_ERROR, &result, &length) == 0 ? result : errno
			            : ETIMEDOUT;
	} else {
		error = errno;
	}
	freeaddrinfo(found);
	*wire = (struct pp_wire){.socket = connection};
	if (connection >= 0 && error == 0)
		return true;
	snprintf(reason, 128, "%.100s", strerror(error));
	pp_wire_close(wire);
	return false;
}

static bool shake_hands(struct pp_wire *wire, const unsigned char token[PP_TOKEN_BYTES], uint32_t rank,
                        uint64_t deadline, char reason[128])
{
	bool ok = pp_wire_send(wire, PP_WORD_HELLO, rank, 0, token, PP_TOKEN_BYTES);
	while (ok) {
		ok = ready(wire->socket, POLLIN, deadline);
		enum pp_arrival arrival = ok ? pp_wire_receive(wire) : PP_CLOSED;
		if (arrival == PP_NOTHING)
			continue;
		if (arrival == PP_FRAME && wire->in.frame.word == PP_WORD_WELCOME &&
		    memcmp(wire->in.frame.data.token, token, PP_TOKEN_BYTES) == 0)
			return true;
		ok = false;
	}
	snprintf(reason, 128, "something else answers");
	pp_wire_close(wire);
	return false;
}

bool pp_star_connect(const struct pp_star_address *address, uint32_t rank, uint64_t patience, struct pp_wire *wire,
                     struct pp_status *status)
{
	uint64_t end = pp_clock() + patience;
	char reason[128] = "it has no address";
	do {
		for (uint32_t i = 0; i < address->count && i < PP_ADDRESSES; i++) {
			uint64_t deadline = pp_clock() + one_try;
			if (deadline > end)
				deadline = end;
			if (reach(address->addresses[i], address->port, deadline, wire, reason) &&
			    shake_hands(wire, address->token, rank, deadline, reason))
				return true;
		}
		nanosleep(&(struct timespec){0, 100000000}, NULL);
	} while (pp_clock() < end);
	char list[256] = "";
	for (uint32_t i = 0; i < address->count && i < PP_ADDRESSES; i++)
		snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "", address->addresses[i]);
	return pp_fail(status, PP_EXIT_ENVIRONMENT,
	               "rank %" PRIu32 " cannot reach rank 0 over TCP at %s, port %" PRIu32
	               " (%s); name an address of rank 0's machine that all can reach in PP_CONTROL_ADDRESS",
	               rank, list, address->port, reason);
}
