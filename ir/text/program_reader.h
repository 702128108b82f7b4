/* Shared by the parts of the `.pps` reader: program_read.c (lines and tables), program_read_fields.c (values),
 * program_read_body.c, program_read_stream.c. Not for others. */
#ifndef PP_PROGRAM_READER_H
#define PP_PROGRAM_READER_H

#include "text_scan.h"

#include "ir/diag.h"
#include "ir/program_check.h"

enum { PP_READER_MOST_ERRORS = 20, PP_READER_LINES = 6 };

/* An array under construction. */
struct pp_list {
	void *items;
	size_t count, capacity;
};

/* Register names of the body being read. */
struct pp_name_slot {
	const char *name; /* NULL: free */
	uint32_t index;
};

struct pp_names {
	struct pp_name_slot *slots;
	uint32_t count, capacity; /* capacity is a power of two */
};

/* One mistake in a table makes many lines wrong: the first is reported, the others are counted. */
struct pp_cause {
	const char *text;
	struct pp_message *message;
	uint64_t more;
	uint32_t lines[PP_READER_LINES]; /* of the first of those */
};

struct pp_reader {
	struct pp_arena *arena;
	struct pp_scan scan;
	struct pp_diag *diag;
	struct pp_program *program;
	struct pp_list hypers, stages, tensors, uses, channels, groups, bodies, texts, programs;
	struct pp_list tensor_spans, body_spans; /* struct pp_span */
	struct pp_list *slots;                   /* [ranks] */
	bool *device_seen;                       /* [ranks] */
	uint64_t members;                        /* of all groups */
	bool misnumbered[PP_RECORD_COUNT];       /* reported once per table */
	struct pp_cause causes[PP_READER_MOST_ERRORS];
	size_t cause_count;
	size_t errors_before;
	bool grid_seen, about_seen, cost_seen, train_seen, source_seen;
};

static inline bool pp_reader_full(const struct pp_reader *reader)
{
	return pp_diag_errors(reader->diag) - reader->errors_before >= PP_READER_MOST_ERRORS;
}

/* Append a zeroed element and keep the program's own pointer and count current. */
void *pp_list_push(struct pp_arena *arena, struct pp_list *list, size_t size);

/* Report `expected …, found …` at a word. */
struct pp_message *pp_expected(struct pp_reader *reader, struct pp_word found, const char *expected);
void pp_reader_fault(struct pp_reader *reader, struct pp_span span, const struct pp_fault *fault);

/* Has an error of this cause been reported? Counts the line then. */
bool pp_reader_repeats(struct pp_reader *reader, struct pp_span span, const char *cause);
void pp_reader_remember(struct pp_reader *reader, const char *cause, struct pp_message *message);
/* At the end: what was counted becomes a note of each first message. */
void pp_reader_note_repeats(struct pp_reader *reader);

/* Report a rank beyond the grid. */
void pp_no_rank(struct pp_reader *reader, struct pp_word word, uint64_t rank);

/* A number of an object: digits, optionally after `letter`. False after a message. */
bool pp_read_number_word(struct pp_reader *reader, struct pp_word word, char letter, const char *expected,
                         uint32_t *value);

/* class.number of a rank's slot, or `-`: checks that the number exists and is of that class. */
bool pp_read_slot_word(struct pp_reader *reader, uint32_t rank, struct pp_word word, uint32_t *slot);

/* dtype*count with count as the text after `*`. */
bool pp_read_payload_word(struct pp_reader *reader, struct pp_word word, uint8_t *dtype, uint32_t *count);

/* Position of a word in a list of names, or -1 after E1002 with did-you-mean. */
int pp_read_name_word(struct pp_reader *reader, struct pp_word word, const char *const *names, uint32_t count,
                      const char *expected);

/* The fields of a table line, to its end or to `{` (consumed) when `block`. Checks each field and the record. */
bool pp_read_fields(struct pp_reader *reader, enum pp_record_kind kind, void *record, uint32_t rank, bool block);

/* After the last wanted word: false with a message if another follows. */
bool pp_read_line_end(struct pp_reader *reader);

/* A block from after its `{` to its `}`. */
void pp_read_body_block(struct pp_reader *reader, struct pp_body *body, struct pp_span opened);
void pp_read_stream_block(struct pp_reader *reader, uint32_t rank, struct pp_stream *stream, struct pp_span opened);

/* E1002 for an unknown first word. */
void pp_unknown_word(struct pp_reader *reader, struct pp_word word, const char *what, const char *const *known,
                     uint32_t count);

#endif
