/* The step tail of the lowering, whole: sums of tied gradients, over tp and dp in buckets, shards of the optimizer, and
 * how fast groups are by the placement of their members. */
#include "stream_judge.h"

/* ---- step tail ------------------------------------------------------------------------------- */

static uint32_t give_slot(struct world *w, uint32_t rank, enum pp_slot_class class, uint32_t tensor)
{
	struct pp_rank *table = &w->program.rank[rank];
	table->slots =
	    pp_arena_grow(w->arena, table->slots, table->slot_count, (size_t)table->slot_count + 1, sizeof *table->slots);
	table->slots[table->slot_count] = (struct pp_slot){.class = (uint8_t) class, .tensor = tensor, .bytes = 24};
	return table->slot_count++;
}

/* Tensor of a use: a weight slot and moments for the first use on the rank, a grad slot for each. */
static void give_uses(struct world *w, const struct pp_use *uses, uint32_t count)
{
	struct pp_program *program = &w->program;
	program->uses = PP_NEW_ARRAY(w->arena, struct pp_use, count);
	program->use_count = count;
	for (uint32_t i = 0; i < count; i++) {
		uint32_t rank = program->stages[uses[i].stage].rank;
		program->uses[i] = uses[i];
		program->uses[i].weight = PP_NULL;
		for (uint32_t j = 0; j < i; j++)
			if (uses[j].tensor == uses[i].tensor && program->stages[uses[j].stage].rank == rank)
				program->uses[i].weight = program->uses[j].weight;
		if (program->uses[i].weight == PP_NULL)
			program->uses[i].weight = give_slot(w, rank, PP_SLOT_WEIGHT, uses[i].tensor);
		program->uses[i].grad = give_slot(w, rank, PP_SLOT_GRAD, uses[i].tensor);
	}
	for (uint32_t rank = 0; rank < program->ranks; rank++)
		for (uint32_t tensor = 0; tensor < program->tensor_count; tensor++)
			for (uint32_t i = 0; i < count; i++)
				if (uses[i].tensor == tensor && program->stages[uses[i].stage].rank == rank) {
					give_slot(w, rank, PP_SLOT_MOMENT, tensor);
					give_slot(w, rank, PP_SLOT_MOMENT, tensor);
					if (pp_tensor_has_master(&program->tensors[tensor]))
						give_slot(w, rank, PP_SLOT_MASTER, tensor);
					break;
				}
	for (uint32_t rank = 0; rank < program->ranks; rank++) {
		give_slot(w, rank, PP_SLOT_LOSSES, PP_NULL);
		give_slot(w, rank, PP_SLOT_NORMS, PP_NULL);
		give_slot(w, rank, PP_SLOT_SCALE, PP_NULL);
	}
}

/* The instructions of a rank that are neither compute nor point-to-point: slots by class. */
static void assert_tail(struct world *w, uint32_t rank, const char *expected)
{
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	const struct pp_stream *stream = &w->program.programs[0].streams[rank];
	for (uint32_t i = 0; i < stream->count; i++) {
		const struct pp_instr *x = &stream->items[i];
		if (x->op < PP_OP_COLL)
			continue;
		fprintf(out, "%s", pp_op_table[x->op].mnemonic);
		for (const char *at = pp_op_table[x->op].signature; *at; at++) {
			if (*at == 'r' && x->sub != PP_ALLREDUCE)
				fprintf(out, " %s", pp_collective_name[x->sub]);
			else if (*at == 'K' || *at == 'G')
				fprintf(out, " %c%u", *at == 'K' ? 'k' : 'g', x->a[*at == 'G']);
			else if (*at == 'n' || *at == 'h')
				fprintf(out, " %c%u", *at == 'n' ? 't' : 'h', x->mb);
			else if (*at == 't')
				fprintf(out, " %s*%u", pp_dtype_name[x->dtype], x->count);
			else if (isdigit((unsigned char)*at) && pp_instr_slot(x, (unsigned)(*at - '1')) != PP_NULL) {
				uint32_t slot = pp_instr_slot(x, (unsigned)(*at - '1'));
				fprintf(out, " %s.%u", pp_slot_class_name[w->program.rank[rank].slots[slot].class], slot);
			}
		}
		for (unsigned flag = 0; flag < PP_FLAG_COUNT; flag++)
			if (x->flags >> flag & 1)
				fprintf(out, " %s", pp_flag_name[flag]);
		fputc('\n', out);
	}
	fclose(out);
	assert_string_equal(text, expected);
	free(text);
}

static void train_in(struct world *w, const struct pp_use *uses, uint32_t count, enum pp_dtype dtype)
{
	static const struct pp_tensor tensors[] = {
	    {.name = "emb.tok", .rows = 8, .columns = 4, .dims = 2, .decay = true},
	    {.name = "norm.gamma", .rows = 4, .columns = 1, .dims = 1},
	};
	w->program.tensors = PP_NEW_ARRAY(w->arena, struct pp_tensor, 2);
	memcpy(w->program.tensors, tensors, sizeof tensors);
	w->program.tensor_count = 2;
	w->program.tensors[0].dtype = w->program.tensors[1].dtype = (uint8_t)dtype;
	give_uses(w, uses, count);
	w->spec.train.hypers = PP_NEW_ARRAY(w->arena, struct pp_hyper, 2);
	w->spec.train.hypers[0] = (struct pp_hyper){.weight_decay = 0.1, .clip = 1};
	w->spec.train.hypers[1] = (struct pp_hyper){.clip = 1};
	w->spec.train.hyper_count = 2;
	lower(w);
	assert_int_equal(w->program.train.hyper_count, 2);
	assert_true(w->program.train.hypers[0].weight_decay > 0.09 && w->program.train.hypers[1].weight_decay < 0.01);
	assert_int_equal(errors_in(w), 0);
}

static void train_with(struct world *w, const struct pp_use *uses, uint32_t count)
{
	train_in(w, uses, count, PP_F32);
}

/* Three ranks; the embedding's weights are used by stages 0 and 2, and twice on rank 0. */
static void tail_of_a_tied_model(void **state)
{
	(void)state;
	struct world w = make_world(0);
	write_gpipe(&w, 3, 4, (const uint32_t[]){0, 1, 2, 0}, 1);
	make_program(&w, 100, 100, 100, 10);
	static const struct pp_use uses[] = {
	    {.tensor = 0, .stage = 0}, {.tensor = 0, .stage = 2}, {.tensor = 0, .stage = 3}, {.tensor = 1, .stage = 1}};
	train_with(&w, uses, 4);
	assert_tail(&w, 0,
	            "zero losses.5\nzero norms.6\nadd grad.1 grad.2\ncoll k0 g1 grad.1 grad.1 f32*32\nwaitc k0\n"
	            "coll k1 g0 losses.5 losses.5 f64*2\nwaitc k1\nsqnorm t0 grad.1 norms.6\ncoll k2 g0 norms.6 norms.6 "
	            "f64*2\nwaitc k2\n"
	            "clip h0 losses.5 norms.6 scale.7\nopt h0 weight.0 grad.1 moment.3 moment.4\n");
	assert_tail(&w, 1,
	            "zero losses.4\nzero norms.5\ncoll k1 g0 losses.4 losses.4 f64*2\nwaitc k1\nsqnorm t1 grad.1 norms.5\n"
	            "coll k2 g0 norms.5 norms.5 f64*2\nwaitc k2\nclip h0 losses.4 norms.5 scale.6\nopt h1 weight.0 grad.1 "
	            "moment.2 moment.3\n");
	assert_tail(&w, 2,
	            "zero losses.4\nzero norms.5\ncoll k0 g1 grad.1 grad.1 f32*32\nwaitc k0\ncoll k1 g0 losses.4 losses.4 "
	            "f64*2\nwaitc k1\n"
	            "coll k2 g0 norms.5 norms.5 f64*2\nwaitc k2\nclip h0 losses.4 norms.5 scale.6\nopt h0 weight.0 grad.1 "
	            "moment.2 moment.3\n");
	assert_int_equal(w.program.group_count, 2);
	assert_int_equal(w.program.groups[1].member_count, 2);
	assert_int_equal(w.program.groups[1].members[1], 2);
	end_world(&w);
}

static void tied_tensors_have_a_limit(void **state)
{
	(void)state;
	struct world w = make_world(0);
	write_gpipe(&w, 2, 2, (const uint32_t[]){0, 1}, 1);
	make_program(&w, 100, 100, 100, 10);
	static const struct pp_use uses[] = {{.tensor = 0, .stage = 0}, {.tensor = 0, .stage = 1}};
	w.program.tensors = PP_NEW(w.arena, struct pp_tensor);
	w.program.tensors[0] = (struct pp_tensor){.name = "emb.tok", .rows = 1u << 20, .columns = 1u << 12, .dims = 2};
	w.program.tensor_count = 1;
	give_uses(&w, uses, 2);
	w.spec.train.hypers = PP_NEW_ARRAY(w.arena, struct pp_hyper, 2);
	w.spec.train.hyper_count = 2;
	assert_false(pp_lower(&w.program, &w.spec, &w.schedule, w.diag));
	assert_string_equal(diagnostics(&w),
	                    "error[E0618]: tied tensor emb.tok has 4294967296 elements; a collective carries at most "
	                    "4294967295\n   = help: place the layers that share it on one rank\n");
	end_world(&w);
}

static void one_rank_has_no_collectives(void **state)
{
	(void)state;
	struct world w = make_world(0);
	write_gpipe(&w, 1, 2, (const uint32_t[]){0, 0}, 3);
	make_program(&w, 100, 100, 100, 10);
	static const struct pp_use uses[] = {
	    {.tensor = 0, .stage = 0}, {.tensor = 0, .stage = 1}, {.tensor = 1, .stage = 1}};
	train_with(&w, uses, 3);
	assert_tail(
	    &w, 0,
	    "zero losses.9\nzero norms.10\nadd grad.1 grad.2\nsqnorm t0 grad.1 norms.10\nsqnorm t1 grad.4 norms.10\n"
	    "clip h0 losses.9 norms.10 scale.11\nopt h0 weight.0 grad.1 moment.5 moment.6\nopt h1 weight.3 grad.4 moment.7 "
	    "moment.8\n");
	assert_int_equal(w.program.group_count, 0);
	end_world(&w);
}

/* ---- tp and dp ------------------------------------------------------------------------------- */

/* Two ranks, tied: tensor 0 on both, tensor 1 (a part of its gradient on each tp coordinate) on rank 1. */
static struct world tied_on_two(uint32_t tp, uint32_t dp, uint32_t zero, uint64_t bucket)
{
	struct world w = make_world(0);
	write_gpipe(&w, 2, 2, (const uint32_t[]){0, 1}, 1);
	make_program(&w, 100, 100, 100, 10);
	w.program.tp = tp;
	w.program.dp = dp;
	w.program.zero = zero;
	w.spec.parallel.bucket = bucket;
	static const struct pp_use uses[] = {
	    {.tensor = 0, .stage = 0}, {.tensor = 0, .stage = 1}, {.tensor = 1, .stage = 1}};
	train_with(&w, uses, 3);
	return w;
}

/* Rank 1 holds grad.1 of tensor 0 (32 elements, 128 bytes) and grad.3 of tensor 1 (4 elements, 16 bytes). */
static void gradients_are_summed_over_dp(void **state)
{
	(void)state;
	struct world w = tied_on_two(1, 2, 0, 1000);
	assert_tail(&w, 1,
	            "zero losses.8\nzero norms.9\n"
	            "coll k1 g1 grad.1 grad.1 f32*32\ncoll k2 g1 grad.3 grad.3 f32*4\nwaitc k1\nwaitc k2\n"
	            "coll k3 g0 grad.1 grad.1 f32*32\nwaitc k3\n"
	            "coll k4 g0 losses.8 losses.8 f64*2\nwaitc k4\ncoll k5 g1 losses.8 losses.8 f64*2\nwaitc k5\n"
	            "sqnorm t1 grad.3 norms.9\ncoll k6 g0 norms.9 norms.9 f64*2\nwaitc k6\n"
	            "clip h0 losses.8 norms.9 scale.10\n"
	            "opt h0 weight.0 grad.1 moment.4 moment.5\nopt h1 weight.2 grad.3 moment.6 moment.7\n");
	assert_int_equal(w.program.groups[1].axis, PP_AXIS_DP);
	assert_int_equal(w.program.groups[1].member_count, 0);
	end_world(&w);
}

/* Shards of 11 and 2 of 32 and 4 elements over 3 coordinates. */
static void gradients_are_scattered_over_dp(void **state)
{
	(void)state;
	struct world w = tied_on_two(1, 3, 1, 1000);
	assert_tail(&w, 1,
	            "zero losses.8\nzero norms.9\n"
	            "coll k1 g1 reducescatter grad.1 grad.1 f32*11\ncoll k2 g1 reducescatter grad.3 grad.3 f32*2\n"
	            "waitc k1\nwaitc k2\n"
	            "coll k3 g0 grad.1 grad.1 f32*11 shard\nwaitc k3\n"
	            "coll k4 g0 losses.8 losses.8 f64*2\nwaitc k4\ncoll k5 g1 losses.8 losses.8 f64*2\nwaitc k5\n"
	            "sqnorm t1 grad.3 norms.9 shard\n"
	            "coll k6 g1 norms.9 norms.9 f64*2\nwaitc k6\ncoll k7 g0 norms.9 norms.9 f64*2\nwaitc k7\n"
	            "clip h0 losses.8 norms.9 scale.10\n"
	            "opt h0 weight.0 grad.1 moment.4 moment.5 shard\nopt h1 weight.2 grad.3 moment.6 moment.7 shard\n"
	            "coll k9 g1 allgather weight.0 weight.0 f32*11\ncoll k10 g1 allgather weight.2 weight.2 f32*2\n"
	            "waitc k9\nwaitc k10\n");
	end_world(&w);
}

/* bf16: updates name the master copy, weights are gathered as they are stored, gradients and norms keep their types. */
static void weights_in_bf16(void **state)
{
	(void)state;
	struct world w = make_world(0);
	write_gpipe(&w, 1, 1, (const uint32_t[]){0}, 1);
	make_program(&w, 100, 100, 100, 10);
	w.program.dp = 3;
	w.program.zero = 1;
	w.spec.parallel.bucket = 1000;
	train_in(&w, (const struct pp_use[]){{.tensor = 0, .stage = 0}, {.tensor = 1, .stage = 0}}, 2, PP_BF16);
	assert_tail(&w, 0,
	            "zero losses.10\nzero norms.11\n"
	            "coll k0 g0 reducescatter grad.1 grad.1 f32*11\ncoll k1 g0 reducescatter grad.3 grad.3 f32*2\n"
	            "waitc k0\nwaitc k1\n"
	            "coll k2 g0 losses.10 losses.10 f64*2\nwaitc k2\n"
	            "sqnorm t0 grad.1 norms.11 shard\nsqnorm t1 grad.3 norms.11 shard\n"
	            "coll k3 g0 norms.11 norms.11 f64*2\nwaitc k3\n"
	            "clip h0 losses.10 norms.11 scale.12\n"
	            "opt h0 weight.0 grad.1 moment.4 moment.5 master.6 shard\n"
	            "opt h1 weight.2 grad.3 moment.7 moment.8 master.9 shard\n"
	            "coll k4 g0 allgather weight.0 weight.0 bf16*11\ncoll k5 g0 allgather weight.2 weight.2 bf16*2\n"
	            "waitc k4\nwaitc k5\n");
	end_world(&w);
}

/* Gradients that tp coordinates see a part of, before dp; norms over tp too. */
static void partial_gradients_are_summed_over_tp(void **state)
{
	(void)state;
	struct world w = make_world(0);
	write_gpipe(&w, 1, 1, (const uint32_t[]){0}, 1);
	make_program(&w, 100, 100, 100, 10);
	w.program.tp = w.program.dp = 2;
	w.program.zero = 1;
	w.spec.parallel.bucket = 1;
	train_with(&w, (const struct pp_use[]){{.tensor = 0, .stage = 0}, {.tensor = 1, .stage = 0}}, 2);
	w.program.programs[0].streams[0] = (struct pp_stream){0};
	w.program.tensors[0].tp_grad = PP_TP_SHARDED;
	w.program.tensors[1].tp_grad = PP_TP_REPLICATED_PARTIAL;
	w.program.group_count = 0;
	assert_true(pp_lower(&w.program, &w.spec, &w.schedule, w.diag));
	assert_tail(&w, 0,
	            "zero losses.8\nzero norms.9\ncoll k0 g0 grad.3 grad.3 f32*4\nwaitc k0\n"
	            "coll k1 g1 reducescatter grad.1 grad.1 f32*8\nwaitc k1\n"
	            "coll k2 g1 reducescatter grad.3 grad.3 f32*2\nwaitc k2\n"
	            "coll k3 g1 losses.8 losses.8 f64*2\nwaitc k3\n"
	            "sqnorm t0 grad.1 norms.9 shard\nsqnorm t1 grad.3 norms.9 shard\n"
	            "coll k4 g1 norms.9 norms.9 f64*2\nwaitc k4\ncoll k5 g0 norms.9 norms.9 f64*2\nwaitc k5\n"
	            "clip h0 losses.8 norms.9 scale.10\n"
	            "opt h0 weight.0 grad.1 moment.4 moment.5 shard\nopt h1 weight.2 grad.3 moment.6 moment.7 shard\n"
	            "coll k6 g1 allgather weight.0 weight.0 f32*8\nwaitc k6\n"
	            "coll k7 g1 allgather weight.2 weight.2 f32*2\nwaitc k7\n");
	end_world(&w);
}

/* Of four tensors of 16 bytes on one rank: how many posts stand before the first wait. */
static uint32_t first_bucket(uint64_t bucket)
{
	struct world w = make_world(0);
	write_gpipe(&w, 1, 1, (const uint32_t[]){0}, 1);
	make_program(&w, 100, 100, 100, 10);
	w.program.dp = 2;
	w.spec.parallel.bucket = bucket;
	w.program.tensor_count = 4;
	w.program.tensors = PP_NEW_ARRAY(w.arena, struct pp_tensor, 4);
	for (uint32_t t = 0; t < 4; t++)
		w.program.tensors[t] = (struct pp_tensor){.name = "x", .rows = 4, .columns = 1, .dims = 1};
	give_uses(&w, (const struct pp_use[]){{.tensor = 0}, {.tensor = 1}, {.tensor = 2}, {.tensor = 3}}, 4);
	w.spec.train.hypers = PP_NEW_ARRAY(w.arena, struct pp_hyper, 2);
	w.spec.train.hyper_count = 2;
	lower(&w);
	const struct pp_stream *stream = &w.program.programs[0].streams[0];
	uint32_t posts = 0;
	for (uint32_t i = 0; stream->items[i].op != PP_OP_WAITC; i++)
		posts += stream->items[i].op == PP_OP_COLL;
	end_world(&w);
	return posts;
}

static void buckets_hold_at_most_their_bytes(void **state)
{
	(void)state;
	assert_int_equal(first_bucket(1), 1); /* one tensor is never cut */
	assert_int_equal(first_bucket(31), 1);
	assert_int_equal(first_bucket(32), 2);
	assert_int_equal(first_bucket(63), 3);
	assert_int_equal(first_bucket(64), 4);
}

static void collectives_have_a_limit(void **state)
{
	(void)state;
	struct world w = make_world(0);
	write_gpipe(&w, 1, 1, (const uint32_t[]){0}, 1);
	make_program(&w, 100, 100, 100, 10);
	w.program.dp = 2;
	w.program.tensors = PP_NEW(w.arena, struct pp_tensor);
	w.program.tensors[0] = (struct pp_tensor){.name = "emb.tok", .rows = 1u << 20, .columns = 1u << 12, .dims = 2};
	w.program.tensor_count = 1;
	give_uses(&w, (const struct pp_use[]){{0}}, 1);
	w.spec.train.hypers = PP_NEW_ARRAY(w.arena, struct pp_hyper, 2);
	w.spec.train.hyper_count = 2;
	assert_false(pp_lower(&w.program, &w.spec, &w.schedule, w.diag));
	assert_string_equal(diagnostics(&w),
	                    "error[E0618]: tensor emb.tok has 4294967296 elements; a collective carries at "
	                    "most 4294967295\n   = help: use a larger tp, or smaller layers\n");
	end_world(&w);
}

/* Two nodes of 4 devices, pp = tp = dp = 2. */
static void assert_latencies(enum pp_rank_order order, uint64_t channel, uint64_t pp, uint64_t tp, uint64_t dp)
{
	struct world w = make_world(0);
	write_gpipe(&w, 2, 2, (const uint32_t[]){0, 1}, 1);
	make_program(&w, 100, 100, 100, 10);
	w.program.tp = w.program.dp = 2;
	w.program.rank_order = (uint8_t)order;
	w.spec.cluster = (struct pp_cluster){
	    .nodes = 2, .gpus = 4, .intra = {.latency = 1, .bandwidth = 300}, .inter = {.latency = 9, .bandwidth = 25}};
	train_with(&w, (const struct pp_use[]){{.tensor = 0, .stage = 0}, {.tensor = 1, .stage = 1}}, 2);
	assert_int_equal(w.program.channels[0].latency, channel);
	assert_int_equal(w.program.channels[0].bandwidth, channel == 1 ? 300 : 25);
	assert_int_equal(w.program.group_count, 3);
	const uint64_t wanted[] = {pp, tp, dp};
	for (uint32_t axis = 0; axis < PP_AXIS_COUNT; axis++) {
		assert_int_equal(w.program.groups[axis].axis, axis);
		assert_int_equal(w.program.groups[axis].latency, wanted[axis]);
		assert_int_equal(w.program.groups[axis].bandwidth, wanted[axis] == 1 ? 300 : 25);
	}
	end_world(&w);
}

/* The axis that comes last spans the nodes. */
static void groups_are_as_slow_as_their_slowest_link(void **state)
{
	(void)state;
	assert_latencies(PP_ORDER_TP_DP_PP, 9, 9, 1, 1);
	assert_latencies(PP_ORDER_TP_PP_DP, 1, 1, 1, 9);
	assert_latencies(PP_ORDER_DP_PP_TP, 1, 1, 9, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(tail_of_a_tied_model),
	    cmocka_unit_test(one_rank_has_no_collectives),
	    cmocka_unit_test(tied_tensors_have_a_limit),
	    cmocka_unit_test(gradients_are_summed_over_dp),
	    cmocka_unit_test(gradients_are_scattered_over_dp),
	    cmocka_unit_test(weights_in_bf16),
	    cmocka_unit_test(partial_gradients_are_summed_over_tp),
	    cmocka_unit_test(buckets_hold_at_most_their_bytes),
	    cmocka_unit_test(collectives_have_a_limit),
	    cmocka_unit_test(groups_are_as_slow_as_their_slowest_link),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
