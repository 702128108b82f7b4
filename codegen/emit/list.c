/* Instruction lists: one line per instruction, for grep. Actions and transfers carry PyTorch's names; a wait says what
 * it waits for; with times, a line says when its instruction begins and how long it takes. */
#include "emit.h"

#include "ir/lifetime.h"
#include "ir/program_text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Posts of the rank's channel ends in order, so that a wait finds its post. */
struct posts {
	uint32_t *first; /* [channels]: where its posts begin in `index`, valid where count > 0 */
	uint32_t *count; /* [channels] */
	uint32_t *index; /* instructions */
};

static bool is_message(const struct pp_instr *instr)
{
	return instr->op == PP_OP_SEND || instr->op == PP_OP_RECV;
}

static void find_posts(struct posts *posts, const struct pp_stream *stream, uint32_t channels)
{
	memset(posts->count, 0, channels * sizeof *posts->count);
	for (uint32_t i = 0; i < stream->count; i++)
		if (is_message(&stream->items[i]))
			posts->count[stream->items[i].a[0]]++;
	uint32_t next = 0;
	for (uint32_t c = 0; c < channels; c++) {
		posts->first[c] = next;
		next += posts->count[c];
		posts->count[c] = 0;
	}
	for (uint32_t i = 0; i < stream->count; i++)
		if (is_message(&stream->items[i])) {
			uint32_t channel = stream->items[i].a[0];
			posts->index[posts->first[channel] + posts->count[channel]++] = i;
		}
}

static const struct pp_instr *post_of(const struct posts *posts, const struct pp_stream *stream,
                                      const struct pp_instr *wait)
{
	if (wait->a[1] >= posts->count[wait->a[0]])
		return NULL;
	return &stream->items[posts->index[posts->first[wait->a[0]] + wait->a[1]]];
}

/* ---- names ----------------------------------------------------------------------------------- */

static const char *const names[PP_OP_COUNT] = {
    [PP_OP_LOAD] = "LOAD",    [PP_OP_FWD] = "F",         [PP_OP_BWD] = "B",           [PP_OP_BWDI] = "I",
    [PP_OP_REMAT] = "R",      [PP_OP_BWDW] = "W",        [PP_OP_SEND] = "SEND",       [PP_OP_RECV] = "RECV",
    [PP_OP_WAIT] = "WAIT",    [PP_OP_COLL] = "COLL",     [PP_OP_WAITC] = "WAIT_COLL", [PP_OP_ZERO] = "ZERO",
    [PP_OP_ADD] = "ADD_GRAD", [PP_OP_SQNORM] = "SQNORM", [PP_OP_CLIP] = "CLIP",       [PP_OP_OPT] = "OPT_STEP",
    [PP_OP_MARK] = "MARK",
};

static const char *message_name(const struct pp_program *program, const struct pp_instr *instr)
{
	bool grad = program->channels[instr->a[0]].kind == PP_GRAD;
	if (instr->op == PP_OP_SEND)
		return grad ? "SEND_B" : "SEND_F";
	return grad ? "RECV_B" : "RECV_F";
}

static const char *collective_name(const struct pp_program *program, uint32_t rank, const struct pp_instr *instr)
{
	static const char *const upper[PP_COLLECTIVE_COUNT] = {"ALLREDUCE", "ALLGATHER", "REDUCESCATTER"};
	if (instr->sub == PP_ALLREDUCE && instr->a[3] < program->rank[rank].slot_count &&
	    program->rank[rank].slots[instr->a[3]].class == PP_SLOT_GRAD)
		return "ALLREDUCE_TIED";
	return upper[instr->sub];
}

static const char *name_of(const struct pp_program *program, uint32_t rank, const struct pp_instr *instr)
{
	if (is_message(instr))
		return message_name(program, instr);
	if (instr->op == PP_OP_COLL)
		return collective_name(program, rank, instr);
	return names[instr->op];
}

/* The stage that acts: a value of stage s is received by its neighbour. */
static uint32_t acting_stage(const struct pp_program *program, const struct pp_instr *instr)
{
	if (instr->op != PP_OP_RECV)
		return instr->stage;
	if (program->channels[instr->a[0]].kind == PP_GRAD)
		return instr->stage ? instr->stage - 1 : 0;
	return instr->stage + 1;
}

/* ---- details --------------------------------------------------------------------------------- */

static void print_message(const struct pp_dump *dump, const struct pp_instr *instr)
{
	const struct pp_channel *channel = &dump->program->channels[instr->a[0]];
	bool sends = instr->op == PP_OP_SEND;
	fprintf(dump->out, "  %s r%u chan %u>%u.%s #%u", sends ? "to" : "from",
	        sends ? channel->destination : channel->source, channel->source, channel->destination,
	        pp_value_name[channel->kind], instr->a[1]);
	if (!dump->costless)
		fprintf(dump->out, " %s", pp_show_bytes(dump->arena, pp_payload_bytes(instr)));
}

/* Everything else as the text form writes it. */
static void print_operands(const struct pp_dump *dump, uint32_t rank, const struct pp_instr *instr)
{
	char *text = NULL;
	size_t length = 0;
	FILE *memory = open_memstream(&text, &length);
	if (!memory)
		return;
	pp_instr_print(dump->program, rank, instr, memory);
	fclose(memory);
	const char *operands = strchr(text, ' ');
	fprintf(dump->out, "  %s", operands ? operands + 1 : "");
	free(text);
}

static void print_tensor(const struct pp_dump *dump, uint32_t rank, uint32_t slot)
{
	uint32_t tensor =
	    slot < dump->program->rank[rank].slot_count ? dump->program->rank[rank].slots[slot].tensor : PP_NULL;
	if (tensor != PP_NULL)
		fprintf(dump->out, "  %s", dump->program->tensors[tensor].name);
}

static void print_group(const struct pp_dump *dump, const struct pp_instr *instr)
{
	const struct pp_group *group = &dump->program->groups[instr->a[1]];
	fprintf(dump->out, "  %s", pp_axis_name[group->axis]);
	for (uint32_t i = 0; i < group->member_count && i < 8; i++)
		fprintf(dump->out, "%sr%u", i ? "," : " ", group->members[i]);
	fprintf(dump->out, "%s %s", group->member_count > 8 ? ",..." : "",
	        pp_show_bytes(dump->arena, pp_payload_bytes(instr)));
}

static void print_details(const struct pp_dump *dump, uint32_t rank, const struct pp_instr *instr)
{
	switch ((enum pp_op)instr->op) {
	case PP_OP_SEND:
	case PP_OP_RECV:
		print_message(dump, instr);
		break;
	case PP_OP_COLL:
		print_group(dump, instr);
		print_tensor(dump, rank, instr->a[3]);
		break;
	case PP_OP_ADD:
	case PP_OP_SQNORM:
	case PP_OP_OPT:
		print_operands(dump, rank, instr);
		print_tensor(dump, rank, instr->a[0]);
		break;
	case PP_OP_LOAD:
		fprintf(dump->out, "  %s", pp_load_name[instr->sub]);
		break;
	case PP_OP_WAITC:
	case PP_OP_ZERO:
	case PP_OP_CLIP:
	case PP_OP_MARK:
		print_operands(dump, rank, instr);
		break;
	case PP_OP_FWD:
	case PP_OP_REMAT:
	case PP_OP_BWD:
	case PP_OP_BWDI:
	case PP_OP_BWDW:
	case PP_OP_WAIT:
	case PP_OP_COUNT:
		break;
	}
}

static bool has_action(const struct pp_instr *instr)
{
	return pp_is_compute(instr) || is_message(instr) || instr->op == PP_OP_LOAD;
}

static void print_wait(const struct pp_dump *dump, const struct posts *posts, const struct pp_stream *stream,
                       const struct pp_instr *wait)
{
	const struct pp_instr *post = post_of(posts, stream, wait);
	if (post)
		fprintf(dump->out, "%-14s %3u %3u  for %s", "WAIT", acting_stage(dump->program, post), post->mb,
		        message_name(dump->program, post));
	else
		fprintf(dump->out, "%-14s    -   -  for a post that is not there", "WAIT");
}

static void print_line(const struct pp_dump *dump, const struct posts *posts, uint32_t rank, uint32_t at)
{
	const struct pp_stream *stream = &dump->named->streams[rank];
	const struct pp_instr *instr = &stream->items[at];
	fprintf(dump->out, "%5u ", at);
	if (instr->op == PP_OP_WAIT)
		print_wait(dump, posts, stream, instr);
	else if (has_action(instr))
		fprintf(dump->out, "%-14s %3u %3u", name_of(dump->program, rank, instr), acting_stage(dump->program, instr),
		        instr->mb);
	else
		fprintf(dump->out, "%-14s   -   -", name_of(dump->program, rank, instr));
	print_details(dump, rank, instr);
	for (unsigned flag = 0; flag < PP_FLAG_COUNT; flag++)
		if (instr->flags >> flag & 1)
			fprintf(dump->out, "  %s", pp_flag_name[flag]);
	if (dump->sim && instr->op != PP_OP_MARK) {
		struct pp_interval interval = dump->sim->instr[rank][at];
		fprintf(dump->out, "  @%s", pp_dump_time(dump, interval.start));
		fprintf(dump->out, "+%s", pp_dump_time(dump, interval.end - interval.start));
	}
	fputc('\n', dump->out);
}

/* ---- head of a rank -------------------------------------------------------------------------- */

/* Neighbours by channels, each once. */
static void print_neighbours(const struct pp_dump *dump, uint32_t rank, bool sources)
{
	const struct pp_program *program = dump->program;
	const char *separator = sources ? " | activations from " : " to ";
	bool any = false;
	for (uint32_t c = 0; c < program->channel_count; c++) {
		const struct pp_channel *channel = &program->channels[c];
		if (channel->kind != PP_ACT || (sources ? channel->destination : channel->source) != rank)
			continue;
		fprintf(dump->out, "%sr%u", separator, sources ? channel->source : channel->destination);
		separator = ",";
		any = true;
	}
	if (!any)
		fprintf(dump->out, "%s-", separator);
}

/* Slots by class that the shown program uses. */
static void count_slots(const struct pp_dump *dump, uint32_t rank, uint32_t counts[PP_SLOT_CLASS_COUNT])
{
	const struct pp_rank *table = &dump->program->rank[rank];
	const struct pp_stream *stream = &dump->named->streams[rank];
	bool *seen = PP_NEW_ARRAY(dump->arena, bool, table->slot_count);
	for (uint32_t i = 0; i < stream->count; i++)
		for (const char *at = pp_op_table[stream->items[i].op].signature; *at; at++) {
			uint32_t slot =
			    *at >= '1' && *at <= '5' ? pp_instr_slot(&stream->items[i], (unsigned)(*at - '1')) : PP_NULL;
			if (slot >= table->slot_count || seen[slot])
				continue;
			seen[slot] = true;
			counts[table->slots[slot].class]++;
		}
}

static void print_head(const struct pp_dump *dump, uint32_t rank)
{
	const struct pp_program *program = dump->program;
	uint32_t slots[PP_SLOT_CLASS_COUNT] = {0};
	fprintf(dump->out, "# rank %u: pp %u tp 0 dp 0 | node %u gpu %u", rank, rank, program->rank[rank].node,
	        program->rank[rank].gpu);
	for (uint32_t s = 0; s < program->stage_count; s++)
		if (program->stages[s].rank == rank) {
			const char *title = program->stages[s].title;
			fprintf(dump->out, " | stage %u%s%s", s, title && *title ? " = " : "", title ? title : "");
		}
	print_neighbours(dump, rank, true);
	print_neighbours(dump, rank, false);
	count_slots(dump, rank, slots);
	fprintf(dump->out, " | buffers recv %u out %u stash %u aux %u", slots[PP_SLOT_RECV], slots[PP_SLOT_OUT],
	        slots[PP_SLOT_STASH], slots[PP_SLOT_AUX]);
	if (slots[PP_SLOT_EXTRA])
		fprintf(dump->out, " extra %u", slots[PP_SLOT_EXTRA]);
	fputc('\n', dump->out);
}

static struct posts make_posts(const struct pp_dump *dump)
{
	uint32_t longest = 0;
	for (uint32_t rank = 0; rank < dump->program->ranks; rank++)
		longest = dump->named->streams[rank].count > longest ? dump->named->streams[rank].count : longest;
	return (struct posts){.first = PP_NEW_ARRAY(dump->arena, uint32_t, dump->program->channel_count),
	                      .count = PP_NEW_ARRAY(dump->arena, uint32_t, dump->program->channel_count),
	                      .index = PP_NEW_ARRAY(dump->arena, uint32_t, longest)};
}

void pp_emit_list(const struct pp_dump *dump)
{
	struct posts posts = make_posts(dump);
	for (uint32_t rank = 0; rank < dump->program->ranks; rank++) {
		if (!dump->chosen[rank])
			continue;
		const struct pp_stream *stream = &dump->named->streams[rank];
		find_posts(&posts, stream, dump->program->channel_count);
		print_head(dump, rank);
		for (uint32_t i = 0; i < stream->count; i++)
			print_line(dump, &posts, rank, i);
	}
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void json_instr(const struct pp_dump *dump, struct pp_json *json, uint32_t rank, uint32_t at)
{
	const struct pp_instr *instr = &dump->named->streams[rank].items[at];
	char *text = NULL;
	size_t length = 0;
	FILE *memory = open_memstream(&text, &length);
	if (!memory)
		return;
	pp_instr_print(dump->program, rank, instr, memory);
	fclose(memory);
	pp_json_open_object(json, NULL);
	pp_json_string(json, "op", name_of(dump->program, rank, instr));
	if (has_action(instr)) {
		pp_json_uint(json, "stage", acting_stage(dump->program, instr));
		pp_json_uint(json, "microbatch", instr->mb);
	}
	pp_json_string(json, "text", text);
	if (dump->sim) {
		pp_json_uint(json, "start", dump->sim->instr[rank][at].start);
		pp_json_uint(json, "end", dump->sim->instr[rank][at].end);
	}
	pp_json_close(json);
	free(text);
}

void pp_emit_list_json(const struct pp_dump *dump)
{
	struct pp_json json = pp_json_begin(dump->out);
	pp_json_open_object(&json, NULL);
	pp_json_string(&json, "schema", "pipec.list/1");
	pp_json_string(&json, "time_unit", pp_dump_time_unit(dump));
	pp_json_open_array(&json, "ranks");
	for (uint32_t rank = 0; rank < dump->program->ranks; rank++) {
		if (!dump->chosen[rank])
			continue;
		pp_json_open_object(&json, NULL);
		pp_json_uint(&json, "rank", rank);
		pp_json_open_array(&json, "instructions");
		for (uint32_t i = 0; i < dump->named->streams[rank].count; i++)
			json_instr(dump, &json, rank, i);
		pp_json_close(&json);
		pp_json_close(&json);
	}
	pp_json_close(&json);
	pp_json_close(&json);
	fputc('\n', dump->out);
}
