/* Bodies under tensor and sequence parallelism: whole instruction lists, counts, tensors, memory of a layer. */
#include "body_measure.h"
#include "body_text.h"
#include "program_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

static struct built parallel_of(const struct model_size *size, uint32_t tp, bool sp)
{
	struct built built = built_of(size);
	built.spec->parallel.tp = tp;
	built.spec->parallel.sp = sp;
	return built;
}

static void make_llama(struct built *built, bool qk_norm)
{
	for (uint32_t l = 0; l < built->spec->model.layer_count; l++) {
		struct pp_layer *layer = &built->spec->model.layers[l];
		layer->bias = false;
		layer->rms = true;
		layer->act = PP_ACT_SWIGLU;
		layer->rope_theta = 10000;
		layer->qk_norm = qk_norm;
	}
}

/* The instruction lines of a body. */
static void assert_instructions(const struct built *built, uint32_t stage, enum pp_phase phase, const char *expected)
{
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	body_print_instructions(body_of(built, stage, phase), out);
	fclose(out);
	assert_string_equal(text, expected);
	free(text);
}

/* GPT-2's kind: a reduction for each pair of projections, posted before the weight gradients on the way back. */
static void tensor_parallel(void **state)
{
	(void)state;
	static const struct model_size tiny = {8, 2, 2, 1, 32, 16, 4, 1, false};
	static const uint32_t whole[] = {0};
	struct built built = parallel_of(&tiny, 2, false);
	build_bodies(&built, whole, 1, 1, FUSED);
	assert_instructions(
	    &built, 0, PP_PHASE_F,
	    "embed ids emb.weight emb.position -> emb.y_part #4\n"
	    "allreduce emb.y_part -> block.0.x\n"
	    "await block.0.x\n"
	    "norm block.0.x block.0.norm1.weight block.0.norm1.bias -> block.0.n1 block.0.mean1 block.0.rstd1 #0\n"
	    "linear block.0.n1 block.0.attn.q.weight block.0.attn.q.bias -> block.0.q\n"
	    "linear block.0.n1 block.0.attn.k.weight block.0.attn.k.bias -> block.0.k\n"
	    "linear block.0.n1 block.0.attn.v.weight block.0.attn.v.bias -> block.0.v\n"
	    "attn block.0.q block.0.k block.0.v -> block.0.o block.0.lse #4 #1 #1 #0\n"
	    "linear block.0.o block.0.attn.o.weight - -> block.0.x2_part\n"
	    "allreduce block.0.x2_part -> block.0.x2.1\n"
	    "await block.0.x2.1\n"
	    "add_bias block.0.x block.0.x2.1 block.0.attn.o.bias -> block.0.x2\n"
	    "norm block.0.x2 block.0.norm2.weight block.0.norm2.bias -> block.0.n2 block.0.mean2 block.0.rstd2 #0\n"
	    "linear block.0.n2 block.0.mlp.fc1.weight block.0.mlp.fc1.bias -> block.0.f\n"
	    "act block.0.f -> block.0.g #1\n"
	    "linear block.0.g block.0.mlp.fc2.weight - -> block.0.y_part\n"
	    "allreduce block.0.y_part -> norm.x.1\n"
	    "await norm.x.1\n"
	    "add_bias block.0.x2 norm.x.1 block.0.mlp.fc2.bias -> norm.x\n"
	    "norm norm.x norm.weight norm.bias -> head.x norm.mean norm.rstd #0\n"
	    "linear head.x head.weight - -> head.logits.1\n"
	    "xent_stats head.logits.1 labels -> head.stats #16\n"
	    "allgather head.stats -> head.stats_all\n"
	    "await head.stats_all\n"
	    "xent_shard head.logits.1 labels head.stats_all -> head.logits loss #16 #0\n");
	assert_instructions(
	    &built, 0, PP_PHASE_B,
	    "linear_dx head.logits head.weight -> head.dx_part\n"
	    "allreduce head.dx_part -> norm.dy\n"
	    "linear_dw head.logits head.x -> head.weight.grad -\n"
	    "await norm.dy\n"
	    "norm_dx norm.dy norm.x norm.weight norm.mean norm.rstd -> block.0.dy #0\n"
	    "norm_dw norm.dy norm.x norm.mean norm.rstd -> norm.weight.grad norm.bias.grad #0\n"
	    "linear_dx block.0.dy block.0.mlp.fc2.weight -> block.0.df.1\n"
	    "linear_dw block.0.dy block.0.g -> block.0.mlp.fc2.weight.grad block.0.mlp.fc2.bias.grad\n"
	    "act_dx block.0.df.1 block.0.f -> block.0.df #1\n"
	    "linear_dx block.0.df block.0.mlp.fc1.weight -> block.0.dn2_part\n"
	    "allreduce block.0.dn2_part -> block.0.dn2\n"
	    "linear_dw block.0.df block.0.n2 -> block.0.mlp.fc1.weight.grad block.0.mlp.fc1.bias.grad\n"
	    "await block.0.dn2\n"
	    "norm_dx block.0.dn2 block.0.x2 block.0.norm2.weight block.0.mean2 block.0.rstd2 -> block.0.dx2.1 #0\n"
	    "norm_dw block.0.dn2 block.0.x2 block.0.mean2 block.0.rstd2 -> block.0.norm2.weight.grad "
	    "block.0.norm2.bias.grad #0\n"
	    "add block.0.dy block.0.dx2.1 -> block.0.dx2\n"
	    "linear_dx block.0.dx2 block.0.attn.o.weight -> block.0.do\n"
	    "linear_dw block.0.dx2 block.0.o -> block.0.attn.o.weight.grad block.0.attn.o.bias.grad\n"
	    "attn_dx block.0.do block.0.q block.0.k block.0.v block.0.o block.0.lse -> block.0.dq block.0.dk block.0.dv #4 "
	    "#1 #1 #0\n"
	    "linear_dx block.0.dq block.0.attn.q.weight -> block.0.dn1_part.1\n"
	    "linear_dx block.0.dk block.0.attn.k.weight -> block.0.dn1_k\n"
	    "add block.0.dn1_part.1 block.0.dn1_k -> block.0.dn1_part.2\n"
	    "linear_dx block.0.dv block.0.attn.v.weight -> block.0.dn1_v\n"
	    "add block.0.dn1_part.2 block.0.dn1_v -> block.0.dn1_part\n"
	    "allreduce block.0.dn1_part -> block.0.dn1\n"
	    "linear_dw block.0.dq block.0.n1 -> block.0.attn.q.weight.grad block.0.attn.q.bias.grad\n"
	    "linear_dw block.0.dk block.0.n1 -> block.0.attn.k.weight.grad block.0.attn.k.bias.grad\n"
	    "linear_dw block.0.dv block.0.n1 -> block.0.attn.v.weight.grad block.0.attn.v.bias.grad\n"
	    "await block.0.dn1\n"
	    "norm_dw block.0.dn1 block.0.x block.0.mean1 block.0.rstd1 -> block.0.norm1.weight.grad "
	    "block.0.norm1.bias.grad #0\n"
	    "norm_dx block.0.dn1 block.0.x block.0.norm1.weight block.0.mean1 block.0.rstd1 -> emb.dy.1 #0\n"
	    "add block.0.dx2 emb.dy.1 -> emb.dy\n"
	    "embed_dw ids emb.dy -> emb.weight.grad emb.position.grad #4\n");
	pp_arena_destroy(built.arena);
}

/* Llama's kind with one key/value head for both ranks: hidden states are gathered before column-parallel projections;
 * the weight gradients gather once more what the stash holds a part of. */
static void sequence_parallel(void **state)
{
	(void)state;
	static const struct model_size few = {8, 4, 1, 1, 12, 16, 4, 1, false};
	static const uint32_t three[] = {0, 1, 2};
	struct built built = parallel_of(&few, 2, true);
	make_llama(&built, false);
	build_bodies(&built, three, 3, 3, MIXED);
	assert_instructions(&built, 0, PP_PHASE_F,
	                    "embed ids emb.weight - -> emb.y_part #4\nreducescatter emb.y_part -> out\nawait out\n");
	assert_instructions(&built, 0, PP_PHASE_B,
	                    "allgather dout -> emb.dy_all\nawait emb.dy_all\n"
	                    "embed_dw ids emb.dy_all -> emb.weight.grad - #4\n");
	assert_instructions(&built, 1, PP_PHASE_F,
	                    "copy in -> block.0.x\n"
	                    "norm block.0.x block.0.norm1.weight - -> block.0.n1 - block.0.rstd1 #1\n"
	                    "allgather block.0.n1 -> block.0.n1_all\n"
	                    "await block.0.n1_all\n"
	                    "linear block.0.n1_all block.0.attn.q.weight - -> block.0.q_plain\n"
	                    "rope block.0.q_plain -> block.0.q #4 #2 #10000\n"
	                    "linear block.0.n1_all block.0.attn.k.weight - -> block.0.k_all\n"
	                    "own_head block.0.k_all -> block.0.k_plain #1\n"
	                    "rope block.0.k_plain -> block.0.k #4 #1 #10000\n"
	                    "linear block.0.n1_all block.0.attn.v.weight - -> block.0.v_all\n"
	                    "own_head block.0.v_all -> block.0.v #1\n"
	                    "attn block.0.q block.0.k block.0.v -> block.0.o block.0.lse #4 #2 #1 #0\n"
	                    "linear block.0.o block.0.attn.o.weight - -> block.0.x2_part\n"
	                    "reducescatter block.0.x2_part -> block.0.x2.1\n"
	                    "await block.0.x2.1\n"
	                    "add block.0.x block.0.x2.1 -> block.0.x2\n"
	                    "norm block.0.x2 block.0.norm2.weight - -> block.0.n2 - block.0.rstd2 #1\n"
	                    "allgather block.0.n2 -> block.0.n2_all\n"
	                    "await block.0.n2_all\n"
	                    "linear block.0.n2_all block.0.mlp.gate.weight - -> block.0.f\n"
	                    "linear block.0.n2_all block.0.mlp.up.weight - -> block.0.u\n"
	                    "swiglu block.0.f block.0.u -> block.0.g\n"
	                    "linear block.0.g block.0.mlp.down.weight - -> block.0.y_part\n"
	                    "reducescatter block.0.y_part -> out.1\n"
	                    "await out.1\n"
	                    "add block.0.x2 out.1 -> out\n");
	assert_instructions(&built, 1, PP_PHASE_B,
	                    "allgather dout -> block.0.dy_all\n"
	                    "allgather block.0.n2 -> block.0.n2_all\n"
	                    "await block.0.dy_all\n"
	                    "linear_dx block.0.dy_all block.0.mlp.down.weight -> block.0.df.1\n"
	                    "linear_dw block.0.dy_all block.0.g -> block.0.mlp.down.weight.grad -\n"
	                    "swiglu_dx block.0.df.1 block.0.f block.0.u -> block.0.df block.0.du\n"
	                    "linear_dx block.0.df block.0.mlp.gate.weight -> block.0.dn2_part.1\n"
	                    "linear_dx block.0.du block.0.mlp.up.weight -> block.0.dn2_up\n"
	                    "add block.0.dn2_part.1 block.0.dn2_up -> block.0.dn2_part\n"
	                    "reducescatter block.0.dn2_part -> block.0.dn2\n"
	                    "await block.0.n2_all\n"
	                    "linear_dw block.0.df block.0.n2_all -> block.0.mlp.gate.weight.grad -\n"
	                    "linear_dw block.0.du block.0.n2_all -> block.0.mlp.up.weight.grad -\n"
	                    "await block.0.dn2\n"
	                    "norm_dx block.0.dn2 block.0.x2 block.0.norm2.weight - block.0.rstd2 -> block.0.dx2.1 #1\n"
	                    "norm_dw block.0.dn2 block.0.x2 - block.0.rstd2 -> block.0.norm2.weight.grad - #1\n"
	                    "add dout block.0.dx2.1 -> block.0.dx2\n"
	                    "allgather block.0.dx2 -> block.0.dx2_all\n"
	                    "allgather block.0.n1 -> block.0.n1_all\n"
	                    "await block.0.dx2_all\n"
	                    "linear_dx block.0.dx2_all block.0.attn.o.weight -> block.0.do\n"
	                    "linear_dw block.0.dx2_all block.0.o -> block.0.attn.o.weight.grad -\n"
	                    "attn_dx block.0.do block.0.q block.0.k block.0.v block.0.o block.0.lse -> block.0.dq_new "
	                    "block.0.dk_new block.0.dv #4 #2 #1 #0\n"
	                    "rope_dx block.0.dq_new -> block.0.dq #4 #2 #10000\n"
	                    "rope_dx block.0.dk_new -> block.0.dk #4 #1 #10000\n"
	                    "own_head_dx block.0.dk -> block.0.dk_all #1\n"
	                    "own_head_dx block.0.dv -> block.0.dv_all #1\n"
	                    "linear_dx block.0.dq block.0.attn.q.weight -> block.0.dn1_part.1\n"
	                    "linear_dx block.0.dk_all block.0.attn.k.weight -> block.0.dn1_k\n"
	                    "add block.0.dn1_part.1 block.0.dn1_k -> block.0.dn1_part.2\n"
	                    "linear_dx block.0.dv_all block.0.attn.v.weight -> block.0.dn1_v\n"
	                    "add block.0.dn1_part.2 block.0.dn1_v -> block.0.dn1_part\n"
	                    "reducescatter block.0.dn1_part -> block.0.dn1\n"
	                    "await block.0.n1_all\n"
	                    "linear_dw block.0.dq block.0.n1_all -> block.0.attn.q.weight.grad -\n"
	                    "linear_dw block.0.dk_all block.0.n1_all -> block.0.attn.k.weight.grad -\n"
	                    "linear_dw block.0.dv_all block.0.n1_all -> block.0.attn.v.weight.grad -\n"
	                    "await block.0.dn1\n"
	                    "norm_dw block.0.dn1 block.0.x - block.0.rstd1 -> block.0.norm1.weight.grad - #1\n"
	                    "norm_dx block.0.dn1 block.0.x block.0.norm1.weight - block.0.rstd1 -> din.1 #1\n"
	                    "add block.0.dx2 din.1 -> din\n");
	assert_instructions(&built, 1, PP_PHASE_W,
	                    "allgather block.0.dy -> block.0.dy_all\n"
	                    "allgather block.0.n2 -> block.0.n2_all\n"
	                    "await block.0.dy_all\n"
	                    "linear_dw block.0.dy_all block.0.g -> block.0.mlp.down.weight.grad -\n"
	                    "await block.0.n2_all\n"
	                    "linear_dw block.0.df block.0.n2_all -> block.0.mlp.gate.weight.grad -\n"
	                    "linear_dw block.0.du block.0.n2_all -> block.0.mlp.up.weight.grad -\n"
	                    "norm_dw block.0.dn2 block.0.x2 - block.0.rstd2 -> block.0.norm2.weight.grad - #1\n"
	                    "allgather block.0.dx2 -> block.0.dx2_all\n"
	                    "allgather block.0.n1 -> block.0.n1_all\n"
	                    "await block.0.dx2_all\n"
	                    "linear_dw block.0.dx2_all block.0.o -> block.0.attn.o.weight.grad -\n"
	                    "own_head_dx block.0.dk -> block.0.dk_all #1\n"
	                    "own_head_dx block.0.dv -> block.0.dv_all #1\n"
	                    "await block.0.n1_all\n"
	                    "linear_dw block.0.dq block.0.n1_all -> block.0.attn.q.weight.grad -\n"
	                    "linear_dw block.0.dk_all block.0.n1_all -> block.0.attn.k.weight.grad -\n"
	                    "linear_dw block.0.dv_all block.0.n1_all -> block.0.attn.v.weight.grad -\n"
	                    "norm_dw block.0.dn1 block.0.x - block.0.rstd1 -> block.0.norm1.weight.grad - #1\n");
	assert_instructions(&built, 2, PP_PHASE_F,
	                    "copy in -> norm.x\n"
	                    "norm norm.x norm.weight - -> head.x - norm.rstd #1\n"
	                    "allgather head.x -> head.x_all\n"
	                    "await head.x_all\n"
	                    "linear head.x_all head.weight - -> head.logits.1\n"
	                    "xent_stats head.logits.1 labels -> head.stats #16\n"
	                    "allgather head.stats -> head.stats_all\n"
	                    "await head.stats_all\n"
	                    "xent_shard head.logits.1 labels head.stats_all -> head.logits loss #16 #0\n");
	assert_instructions(&built, 2, PP_PHASE_B,
	                    "allgather head.x -> head.x_all\n"
	                    "linear_dx head.logits head.weight -> head.dx_part\n"
	                    "reducescatter head.dx_part -> norm.dy\n"
	                    "await head.x_all\n"
	                    "linear_dw head.logits head.x_all -> head.weight.grad -\n"
	                    "await norm.dy\n"
	                    "norm_dx norm.dy norm.x norm.weight - norm.rstd -> din #1\n"
	                    "norm_dw norm.dy norm.x - norm.rstd -> norm.weight.grad - #1\n");
	assert_int_equal(built.program->stages[1].out_count, 2 * 8); /* the message is a part of the rows */
	pp_arena_destroy(built.arena);
}

/* Every layer a stage of its own: the counts are what the bodies of one rank do, in every phase. */
static void counts_are_what_bodies_do(void **state)
{
	(void)state;
	static const struct model_size grouped = {32, 8, 4, 2, 40, 24, 8, 2, true};
	static const uint32_t each[] = {0, 1, 2, 3, 4};
	for (unsigned i = 0; i < 8 * RECOMPUTES; i++) {
		unsigned variant = i / RECOMPUTES;
		struct built built = parallel_of(&grouped, variant & 2 ? 4 : 2, variant & 1);
		if (variant & 4)
			make_llama(&built, true);
		recompute_blocks(&built, recompute_variant(i));
		build_bodies(&built, each, 5, 5, MIXED);
		for (uint32_t l = 0; l < 5; l++) {
			const struct pp_layer_counts *counts = &built.stages.layers[l];
			const struct pp_stage *stage = &built.program->stages[l];
			for (unsigned phase = 0; phase < (stage->recomputes ? PP_PHASE_COUNT : PP_PHASE_R); phase++) {
				uint64_t matmul, attention, traffic;
				measure(body_of(&built, l, (enum pp_phase)phase), &matmul, &attention, &traffic);
				assert_int_equal(matmul, counts->matmul_flops[phase]);
				assert_int_equal(attention, counts->attention_flops[phase]);
				assert_int_equal(traffic, counts->memory_bytes[phase]);
				assert_true(body_of(&built, l, (enum pp_phase)phase)->work_bytes <= counts->work_bytes);
			}
			assert_int_equal(stage->stash_bytes, counts->stash_bytes);
			assert_int_equal(stage->extra_bytes, counts->extra_bytes + counts->split_bytes);
			assert_int_equal(stage->out_count * pp_dtype_size[stage->out_dtype], counts->output_bytes);
		}
		pp_arena_destroy(built.arena);
	}
}

/* Collectives of a body as bytes by kind. */
static void body_collectives(const struct built *built, uint32_t stage, enum pp_phase phase, uint64_t bytes[3])
{
	const struct pp_body *body = body_of(built, stage, phase);
	memset(bytes, 0, 3 * sizeof *bytes);
	for (uint32_t i = 0; i < body->count; i++) {
		const struct pp_body_instr *instr = &body->items[i];
		const struct pp_reg *from = &body->regs[instr->operand[0]], *to = &body->regs[instr->operand[1]];
		if (instr->op == PP_BODY_ALLREDUCE)
			bytes[PP_ALLREDUCE] += reg_bytes(from);
		else if (instr->op == PP_BODY_ALLGATHER)
			bytes[PP_ALLGATHER] += reg_bytes(to);
		else if (instr->op == PP_BODY_REDUCESCATTER)
			bytes[PP_REDUCESCATTER] += reg_bytes(from);
	}
}

static void collectives_are_those_of_the_bodies(void **state)
{
	(void)state;
	static const struct model_size size = {32, 8, 4, 1, 40, 24, 8, 2, true};
	static const uint32_t each[] = {0, 1, 2, 3};
	for (unsigned n = 0; n < 4 * RECOMPUTES; n++) {
		unsigned variant = n / RECOMPUTES;
		struct built built = parallel_of(&size, 4, variant & 1);
		if (variant & 2)
			make_llama(&built, true);
		recompute_blocks(&built, recompute_variant(n));
		build_bodies(&built, each, 4, 4, MIXED);
		for (uint32_t l = 0; l < 4; l++)
			for (unsigned phase = 0; phase < PP_PHASE_COUNT; phase++) {
				uint64_t found[3] = {0}, listed[3] = {0};
				struct pp_layer_collectives list;
				if (built.program->stages[l].body[phase] != PP_NULL)
					body_collectives(&built, l, (enum pp_phase)phase, found);
				pp_layer_collectives_list(&built.spec->model.layers[l], built.spec, &list);
				for (uint32_t i = 0; i < list.count; i++)
					listed[list.items[i].kind] += list.items[i].phases >> phase & 1 ? list.items[i].bytes : 0;
				assert_memory_equal(found, listed, sizeof found);
			}
		pp_arena_destroy(built.arena);
	}
}

/* sharded, or whole with a gradient that is the same on all ranks, or the sum over them. */
static void assert_marks(const struct built *built, const char *expected)
{
	char text[512] = "";
	for (uint32_t t = 0; t < built->program->tensor_count; t++) {
		const struct pp_tensor *tensor = &built->program->tensors[t];
		text[t] = tensor->tp_grad == PP_TP_SHARDED            ? (char)('0' + tensor->shard)
		          : tensor->tp_grad == PP_TP_REPLICATED_EQUAL ? 'e'
		                                                      : 'p';
	}
	assert_string_equal(text, expected);
}

static void marks_of_gradients(void **state)
{
	(void)state;
	static const struct model_size plain = {32, 8, 4, 1, 40, 24, 8, 2, true}, few = {32, 8, 2, 1, 40, 24, 8, 2, false};
	static const uint32_t whole[] = {0};
	static const char *const expected[] = {
	    "0e"
	    "ee"
	    "000000"
	    "1e"
	    "ee"
	    "00"
	    "1e"
	    "ee", /* emb; norm1, q k v, o, norm2, fc1, fc2; norm: each with biases */
	    "0e"
	    "pp"
	    "000000"
	    "1e"
	    "pp"
	    "00"
	    "1e"
	    "pp",
	    "0"
	    "e"
	    "0pp"
	    "pp"
	    "1"
	    "e"
	    "00"
	    "1"
	    "e"
	    "0", /* emb; norm1, q k v, qk-norm, o, norm2, gate up, down; norm; head */
	    "0"
	    "p"
	    "0pp"
	    "pp"
	    "1"
	    "p"
	    "00"
	    "1"
	    "p"
	    "0",
	};
	for (unsigned variant = 0; variant < 4; variant++) {
		struct built built = parallel_of(variant & 2 ? &few : &plain, 4, variant & 1);
		if (variant & 2)
			make_llama(&built, true);
		build_bodies(&built, whole, 1, 1, FUSED);
		assert_marks(&built, expected[variant]);
		pp_arena_destroy(built.arena);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(tensor_parallel),           cmocka_unit_test(sequence_parallel),
	    cmocka_unit_test(counts_are_what_bodies_do), cmocka_unit_test(collectives_are_those_of_the_bodies),
	    cmocka_unit_test(marks_of_gradients),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
