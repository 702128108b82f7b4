/* Reductions in member order over MPI point-to-point.
 *
 * Member i receives the partial sum of members 0 .. i-1 for a piece, adds its own, and passes it to member i+1; the
 * last member has the total of that piece and passes it down again. While piece k goes down, piece k+1 goes up. So
 * every element is ((s0 + s1) + s2) + …, computed once, and all members hold the same bits.
 *
 * Requires: all members post the same reductions of a group in the same order. */
#include "collective_mpi.h"

#include <string.h>

static size_t pieces_of(const struct pp_mpi_reduction *post)
{
	size_t bytes = post->count * pp_dtype_size[post->dtype];
	return bytes ? (bytes + PP_MPI_PIECE - 1) / PP_MPI_PIECE : 1;
}

static int piece_bytes(const struct pp_mpi_reduction *post, size_t piece)
{
	size_t bytes = post->count * pp_dtype_size[post->dtype], start = piece * PP_MPI_PIECE;
	return (int)(bytes - start < PP_MPI_PIECE ? bytes - start : PP_MPI_PIECE);
}

/* Has the leg's request completed? */
static int finish(struct pp_mpi_leg *leg, int *done)
{
	return MPI_Test(&leg->request, done, MPI_STATUS_IGNORE);
}

/* One move of the piece that goes up; *moved tells whether anything changed. */
static int step_up(struct pp_mpi_line *line, const struct pp_mpi_reduction *post, bool *moved)
{
	struct pp_mpi_leg *up = &line->up;
	int bytes = piece_bytes(post, up->piece), done = 1;
	size_t start = up->piece * PP_MPI_PIECE;
	*moved = false;
	if (up->sending) {
		int error = finish(up, &done);
		if (error != MPI_SUCCESS || !done)
			return error;
		up->sending = false;
		up->piece++;
		*moved = true;
		return MPI_SUCCESS;
	}
	if (!up->receiving && line->before >= 0) {
		up->receiving = true;
		*moved = true;
		return MPI_Irecv(line->piece, bytes, MPI_BYTE, line->before, line->tag, line->comm, &up->request);
	}
	if (line->before >= 0) {
		int error = finish(up, &done);
		if (error != MPI_SUCCESS || !done)
			return error;
		up->receiving = false;
		pp_transport_sum(post->dtype, post->to + start, line->piece, post->from + start,
		                 (size_t)bytes / pp_dtype_size[post->dtype]);
	} else {
		memmove(post->to + start, post->from + start, (size_t)bytes);
	}
	*moved = true;
	if (line->after < 0) {
		up->piece++;
		return MPI_SUCCESS;
	}
	up->sending = true;
	return MPI_Isend(post->to + start, bytes, MPI_BYTE, line->after, line->tag, line->comm, &up->request);
}

/* One move of the piece that comes down: it must have gone up before. */
static int step_down(struct pp_mpi_line *line, const struct pp_mpi_reduction *post, bool *moved)
{
	struct pp_mpi_leg *down = &line->down;
	*moved = false;
	if (down->piece >= line->up.piece)
		return MPI_SUCCESS;
	int bytes = piece_bytes(post, down->piece), done = 1;
	unsigned char *to = post->to + down->piece * PP_MPI_PIECE;
	if (down->receiving || down->sending) {
		int error = finish(down, &done);
		if (error != MPI_SUCCESS || !done)
			return error;
		*moved = true;
		if (down->sending || line->before < 0) {
			down->receiving = down->sending = false;
			down->piece++;
			return MPI_SUCCESS;
		}
		down->receiving = false;
		down->sending = true;
		return MPI_Isend(to, bytes, MPI_BYTE, line->before, line->tag, line->comm, &down->request);
	}
	*moved = true;
	if (line->after >= 0) {
		down->receiving = true;
		return MPI_Irecv(to, bytes, MPI_BYTE, line->after, line->tag, line->comm, &down->request);
	}
	down->sending = true;
	return MPI_Isend(to, bytes, MPI_BYTE, line->before, line->tag, line->comm, &down->request);
}

int pp_mpi_line_poll(struct pp_mpi_line *line)
{
	while (line->done < line->posted) {
		const struct pp_mpi_reduction *post = &line->posts[line->done % line->capacity];
		size_t pieces = pieces_of(post);
		bool up = false, down = false;
		if (line->up.piece < pieces) {
			int error = step_up(line, post, &up);
			if (error != MPI_SUCCESS)
				return error;
		}
		int error = step_down(line, post, &down);
		if (error != MPI_SUCCESS)
			return error;
		if (line->down.piece == pieces) {
			line->up.piece = line->down.piece = 0;
			line->done++;
			continue;
		}
		if (!up && !down)
			return MPI_SUCCESS;
	}
	return MPI_SUCCESS;
}
