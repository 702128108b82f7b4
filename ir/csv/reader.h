/* What the parts of the CSV reader share. Private to ir/csv/. */
#ifndef PP_CSV_READER_H
#define PP_CSV_READER_H

#include "ir/csv.h"

struct pp_csv_reader {
	struct pp_arena *arena;
	const struct pp_source *source;
	struct pp_diag *diag;
	bool legacy;
	bool mixed;           /* old letters were met, and reported: the rest is written in them too */
	uint32_t row, column; /* of the cell at hand, from 0 */
};

/* The text of one field, without blanks around it and without quotes. */
struct pp_csv_field {
	const char *at, *end;
};

/* Read one field that is not blank: one or two cells into `cells`. 0: E0613 or E0651 was reported. */
unsigned pp_csv_read_field(struct pp_csv_reader *reader, struct pp_csv_field field, struct pp_csv_cell cells[2]);

static inline struct pp_span pp_csv_span(const struct pp_csv_reader *reader, const char *from, const char *to)
{
	uint32_t start = reader->source->base + (uint32_t)(from - reader->source->text);
	return (struct pp_span){start, start + (uint32_t)(to - from)};
}

#endif
