/* Frames over nonblocking sockets.
 *
 * Ensures: no call blocks, no frame that is too long or of another version gets through. */
#include "frame.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HEADER = offsetof(struct pp_frame, data), MAGIC = 0x70703031 };

void pp_wire_close(struct pp_wire *wire)
{
	if (wire->socket >= 0)
		close(wire->socket);
	wire->socket = -1;
	wire->filled = 0;
}

bool pp_wire_send(struct pp_wire *wire, enum pp_word word, uint32_t rank, uint64_t number, const void *data,
                  size_t bytes)
{
	if (wire->socket < 0)
		return false;
	struct pp_frame frame = {
	    .word = (uint32_t)word, .rank = rank, .number = number, .bytes = (uint32_t)bytes, .magic = MAGIC};
	if (bytes)
		memcpy(&frame.data, data, bytes);
	const unsigned char *at = (const unsigned char *)&frame;
	size_t left = HEADER + bytes;
	ssize_t sent = send(wire->socket, at, left, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (sent == (ssize_t)left)
		return true;
	/* A peer that does not read for so long that its buffer is full is of no use; a frame in pieces would garble the
	 * next. One that went entirely unsent does no harm. */
	if (sent > 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
		shutdown(wire->socket, SHUT_RDWR);
	return false;
}

/* Bytes that data of this kind must have, or at most. */
static bool is_sound(struct pp_frame *frame)
{
	if (frame->magic != MAGIC || frame->word >= PP_WORD_COUNT || frame->bytes > sizeof frame->data)
		return false;
	switch ((enum pp_word)frame->word) {
	case PP_WORD_HELLO:
	case PP_WORD_WELCOME:
		return frame->bytes == PP_TOKEN_BYTES;
	case PP_WORD_PLACE:
		return frame->bytes == sizeof frame->data.place;
	case PP_WORD_FAILED:
	case PP_WORD_SIGNAL:
	case PP_WORD_STOP:
	case PP_WORD_LAST:
		return frame->bytes > 0;
	case PP_WORD_ASK:
	case PP_WORD_ENDED:
	case PP_WORD_HOLD:
	case PP_WORD_BEGUN:
	case PP_WORD_END:
	case PP_WORD_COUNT:
		return frame->bytes == 0;
	}
	return false;
}

static void terminate(struct pp_frame *frame)
{
	if (frame->word == PP_WORD_PLACE)
		frame->data.place.doing[PP_DOING_BYTES - 1] = '\0';
	else if (frame->bytes)
		frame->data.text[frame->bytes < PP_FRAME_DATA ? frame->bytes : PP_FRAME_DATA - 1] = '\0';
}

enum pp_arrival pp_wire_receive(struct pp_wire *wire)
{
	if (wire->socket < 0)
		return PP_CLOSED;
	for (;;) {
		uint32_t wanted = HEADER;
		if (wire->filled >= HEADER) {
			if (!is_sound(&wire->in.frame)) {
				pp_wire_close(wire);
				return PP_CLOSED;
			}
			wanted += wire->in.frame.bytes;
		}
		if (wire->filled >= HEADER && wire->filled == wanted) {
			wire->filled = 0;
			terminate(&wire->in.frame);
			return PP_FRAME;
		}
		ssize_t got = recv(wire->socket, wire->in.bytes + wire->filled, wanted - wire->filled, MSG_DONTWAIT);
		if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
			return PP_NOTHING;
		if (got <= 0) {
			pp_wire_close(wire);
			return PP_CLOSED;
		}
		wire->filled += (uint32_t)got;
	}
}
