/* Bodies of stages: whole instruction lists, stash and workspace against the counts, slots, ends of stages. */
#include "body_measure.h"
#include "body_text.h"
#include "program_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

static const struct model_size tiny = {8, 2, 2, 1, 32, 16, 4, 1, false};

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

static void forward_and_fused_backward(void **state)
{
	(void)state;
	struct built built = built_of(&tiny);
	const uint32_t whole[] = {0};
	build_bodies(&built, whole, 1, 1, FUSED);
	assert_instructions(
	    &built, 0, PP_PHASE_F,
	    "embed ids emb.weight emb.position -> block.0.x #4\n"
	    "norm block.0.x block.0.norm1.weight block.0.norm1.bias -> block.0.n1 block.0.mean1 block.0.rstd1 #0\n"
	    "linear block.0.n1 block.0.attn.q.weight block.0.attn.q.bias -> block.0.q\n"
	    "linear block.0.n1 block.0.attn.k.weight block.0.attn.k.bias -> block.0.k\n"
	    "linear block.0.n1 block.0.attn.v.weight block.0.attn.v.bias -> block.0.v\n"
	    "attn block.0.q block.0.k block.0.v -> block.0.o block.0.lse #4 #2 #2 #0\n"
	    "linear block.0.o block.0.attn.o.weight block.0.attn.o.bias -> block.0.x2.1\n"
	    "add block.0.x block.0.x2.1 -> block.0.x2\n"
	    "norm block.0.x2 block.0.norm2.weight block.0.norm2.bias -> block.0.n2 block.0.mean2 block.0.rstd2 #0\n"
	    "linear block.0.n2 block.0.mlp.fc1.weight block.0.mlp.fc1.bias -> block.0.f\n"
	    "act block.0.f -> block.0.g #1\n"
	    "linear block.0.g block.0.mlp.fc2.weight block.0.mlp.fc2.bias -> norm.x.1\n"
	    "add block.0.x2 norm.x.1 -> norm.x\n"
	    "norm norm.x norm.weight norm.bias -> head.x norm.mean norm.rstd #0\n"
	    "linear head.x head.weight - -> head.logits.1\n"
	    "xent head.logits.1 labels -> head.logits loss #16 #0\n");
	assert_instructions(
	    &built, 0, PP_PHASE_B,
	    "linear_dx head.logits head.weight -> norm.dy\n"
	    "linear_dw head.logits head.x -> head.weight.grad -\n"
	    "norm_dx norm.dy norm.x norm.weight norm.mean norm.rstd -> block.0.dy #0\n"
	    "norm_dw norm.dy norm.x norm.mean norm.rstd -> norm.weight.grad norm.bias.grad #0\n"
	    "linear_dx block.0.dy block.0.mlp.fc2.weight -> block.0.df.1\n"
	    "linear_dw block.0.dy block.0.g -> block.0.mlp.fc2.weight.grad block.0.mlp.fc2.bias.grad\n"
	    "act_dx block.0.df.1 block.0.f -> block.0.df #1\n"
	    "linear_dx block.0.df block.0.mlp.fc1.weight -> block.0.dn2\n"
	    "linear_dw block.0.df block.0.n2 -> block.0.mlp.fc1.weight.grad block.0.mlp.fc1.bias.grad\n"
	    "norm_dx block.0.dn2 block.0.x2 block.0.norm2.weight block.0.mean2 block.0.rstd2 -> block.0.dx2.1 #0\n"
	    "norm_dw block.0.dn2 block.0.x2 block.0.mean2 block.0.rstd2 -> block.0.norm2.weight.grad "
	    "block.0.norm2.bias.grad #0\n"
	    "add block.0.dy block.0.dx2.1 -> block.0.dx2\n"
	    "linear_dx block.0.dx2 block.0.attn.o.weight -> block.0.do\n"
	    "linear_dw block.0.dx2 block.0.o -> block.0.attn.o.weight.grad block.0.attn.o.bias.grad\n"
	    "attn_dx block.0.do block.0.q block.0.k block.0.v block.0.o block.0.lse -> block.0.dq block.0.dk block.0.dv #4 "
	    "#2 #2 #0\n"
	    "linear_dx block.0.dq block.0.attn.q.weight -> block.0.dn1.1\n"
	    "linear_dw block.0.dq block.0.n1 -> block.0.attn.q.weight.grad block.0.attn.q.bias.grad\n"
	    "linear_dx block.0.dk block.0.attn.k.weight -> block.0.dn1_k\n"
	    "linear_dw block.0.dk block.0.n1 -> block.0.attn.k.weight.grad block.0.attn.k.bias.grad\n"
	    "add block.0.dn1.1 block.0.dn1_k -> block.0.dn1.2\n"
	    "linear_dx block.0.dv block.0.attn.v.weight -> block.0.dn1_v\n"
	    "linear_dw block.0.dv block.0.n1 -> block.0.attn.v.weight.grad block.0.attn.v.bias.grad\n"
	    "add block.0.dn1.2 block.0.dn1_v -> block.0.dn1\n"
	    "norm_dw block.0.dn1 block.0.x block.0.mean1 block.0.rstd1 -> block.0.norm1.weight.grad "
	    "block.0.norm1.bias.grad #0\n"
	    "norm_dx block.0.dn1 block.0.x block.0.norm1.weight block.0.mean1 block.0.rstd1 -> emb.dy.1 #0\n"
	    "add block.0.dx2 emb.dy.1 -> emb.dy\n"
	    "embed_dw ids emb.dy -> emb.weight.grad emb.position.grad #4\n");
	pp_arena_destroy(built.arena);
}

/* A middle stage: in and dout are copied to where backward finds them; df, dq, dk, dv take over dead bytes. */
static void split_backward(void **state)
{
	(void)state;
	struct built built = built_of(&tiny);
	const uint32_t three[] = {0, 1, 2};
	build_bodies(&built, three, 3, 3, SPLIT);
	assert_instructions(
	    &built, 1, PP_PHASE_I,
	    "copy dout -> block.0.dy\n"
	    "linear_dx block.0.dy block.0.mlp.fc2.weight -> block.0.dg\n"
	    "act_dx block.0.dg block.0.f -> block.0.df #1\n"
	    "linear_dx block.0.df block.0.mlp.fc1.weight -> block.0.dn2\n"
	    "norm_dx block.0.dn2 block.0.x2 block.0.norm2.weight block.0.mean2 block.0.rstd2 -> block.0.dx2.1 #0\n"
	    "add block.0.dy block.0.dx2.1 -> block.0.dx2\n"
	    "linear_dx block.0.dx2 block.0.attn.o.weight -> block.0.do\n"
	    "attn_dx block.0.do block.0.q block.0.k block.0.v block.0.o block.0.lse -> block.0.dq_new block.0.dk_new "
	    "block.0.dv_new #4 #2 #2 #0\n"
	    "copy block.0.dq_new -> block.0.dq\n"
	    "copy block.0.dk_new -> block.0.dk\n"
	    "copy block.0.dv_new -> block.0.dv\n"
	    "linear_dx block.0.dq block.0.attn.q.weight -> block.0.dn1.1\n"
	    "linear_dx block.0.dk block.0.attn.k.weight -> block.0.dn1_k\n"
	    "add block.0.dn1.1 block.0.dn1_k -> block.0.dn1.2\n"
	    "linear_dx block.0.dv block.0.attn.v.weight -> block.0.dn1_v\n"
	    "add block.0.dn1.2 block.0.dn1_v -> block.0.dn1\n"
	    "norm_dx block.0.dn1 block.0.x block.0.norm1.weight block.0.mean1 block.0.rstd1 -> din.1 #0\n"
	    "add block.0.dx2 din.1 -> din\n");
	assert_instructions(&built, 1, PP_PHASE_W,
	                    "linear_dw block.0.dy block.0.g -> block.0.mlp.fc2.weight.grad block.0.mlp.fc2.bias.grad\n"
	                    "linear_dw block.0.df block.0.n2 -> block.0.mlp.fc1.weight.grad block.0.mlp.fc1.bias.grad\n"
	                    "norm_dw block.0.dn2 block.0.x2 block.0.mean2 block.0.rstd2 -> block.0.norm2.weight.grad "
	                    "block.0.norm2.bias.grad #0\n"
	                    "linear_dw block.0.dx2 block.0.o -> block.0.attn.o.weight.grad block.0.attn.o.bias.grad\n"
	                    "linear_dw block.0.dq block.0.n1 -> block.0.attn.q.weight.grad block.0.attn.q.bias.grad\n"
	                    "linear_dw block.0.dk block.0.n1 -> block.0.attn.k.weight.grad block.0.attn.k.bias.grad\n"
	                    "linear_dw block.0.dv block.0.n1 -> block.0.attn.v.weight.grad block.0.attn.v.bias.grad\n"
	                    "norm_dw block.0.dn1 block.0.x block.0.mean1 block.0.rstd1 -> block.0.norm1.weight.grad "
	                    "block.0.norm1.bias.grad #0\n");
	assert_instructions(&built, 0, PP_PHASE_F, "embed ids emb.weight emb.position -> out #4\n");
	assert_instructions(&built, 0, PP_PHASE_I, "copy dout -> emb.dy\n");
	assert_instructions(&built, 0, PP_PHASE_W, "embed_dw ids emb.dy -> emb.weight.grad emb.position.grad #4\n");
	assert_instructions(&built, 2, PP_PHASE_I,
	                    "linear_dx head.logits head.weight -> norm.dy\n"
	                    "norm_dx norm.dy norm.x norm.weight norm.mean norm.rstd -> din #0\n");
	assert_true(built.program->stages[0].body[PP_PHASE_B] == PP_NULL);
	pp_arena_destroy(built.arena);
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

/* Llama's kind with qk-norm: no step of q and k works in place; in I the way back ends on the bytes of q and k. */
static void llama_forward_and_backward(void **state)
{
	(void)state;
	static const struct model_size grouped = {8, 4, 2, 1, 12, 16, 4, 1, false};
	struct built built = built_of(&grouped);
	const uint32_t three[] = {0, 1, 2};
	make_llama(&built, true);
	build_bodies(&built, three, 3, 3, MIXED);
	assert_instructions(&built, 0, PP_PHASE_F, "embed ids emb.weight - -> out #4\n");
	assert_instructions(&built, 0, PP_PHASE_B, "embed_dw ids dout -> emb.weight.grad - #4\n");
	assert_instructions(&built, 1, PP_PHASE_F,
	                    "copy in -> block.0.x\n"
	                    "norm block.0.x block.0.norm1.weight - -> block.0.n1 - block.0.rstd1 #1\n"
	                    "linear block.0.n1 block.0.attn.q.weight - -> block.0.q_plain\n"
	                    "norm block.0.q_plain block.0.attn.q_norm.weight - -> block.0.q_normed - block.0.q_rstd #1\n"
	                    "rope block.0.q_normed -> block.0.q #4 #4 #10000\n"
	                    "linear block.0.n1 block.0.attn.k.weight - -> block.0.k_plain\n"
	                    "norm block.0.k_plain block.0.attn.k_norm.weight - -> block.0.k_normed - block.0.k_rstd #1\n"
	                    "rope block.0.k_normed -> block.0.k #4 #2 #10000\n"
	                    "linear block.0.n1 block.0.attn.v.weight - -> block.0.v\n"
	                    "attn block.0.q block.0.k block.0.v -> block.0.o block.0.lse #4 #4 #2 #0\n"
	                    "linear block.0.o block.0.attn.o.weight - -> block.0.x2.1\n"
	                    "add block.0.x block.0.x2.1 -> block.0.x2\n"
	                    "norm block.0.x2 block.0.norm2.weight - -> block.0.n2 - block.0.rstd2 #1\n"
	                    "linear block.0.n2 block.0.mlp.gate.weight - -> block.0.f\n"
	                    "linear block.0.n2 block.0.mlp.up.weight - -> block.0.u\n"
	                    "swiglu block.0.f block.0.u -> block.0.g\n"
	                    "linear block.0.g block.0.mlp.down.weight - -> out.1\n"
	                    "add block.0.x2 out.1 -> out\n");
	assert_instructions(
	    &built, 1, PP_PHASE_I,
	    "copy dout -> block.0.dy\n"
	    "linear_dx block.0.dy block.0.mlp.down.weight -> block.0.dg\n"
	    "swiglu_dx block.0.dg block.0.f block.0.u -> block.0.df block.0.du\n"
	    "linear_dx block.0.df block.0.mlp.gate.weight -> block.0.dn2.1\n"
	    "linear_dx block.0.du block.0.mlp.up.weight -> block.0.dn2_up\n"
	    "add block.0.dn2.1 block.0.dn2_up -> block.0.dn2\n"
	    "norm_dx block.0.dn2 block.0.x2 block.0.norm2.weight - block.0.rstd2 -> block.0.dx2.1 #1\n"
	    "add block.0.dy block.0.dx2.1 -> block.0.dx2\n"
	    "linear_dx block.0.dx2 block.0.attn.o.weight -> block.0.do\n"
	    "attn_dx block.0.do block.0.q block.0.k block.0.v block.0.o block.0.lse -> block.0.dq_new block.0.dk_new "
	    "block.0.dv_new #4 #4 #2 #0\n"
	    "rope_dx block.0.dq_new -> block.0.dq_normed #4 #4 #10000\n"
	    "norm_dx block.0.dq_normed block.0.q_plain block.0.attn.q_norm.weight - block.0.q_rstd -> block.0.dq #1\n"
	    "rope_dx block.0.dk_new -> block.0.dk_normed #4 #2 #10000\n"
	    "norm_dx block.0.dk_normed block.0.k_plain block.0.attn.k_norm.weight - block.0.k_rstd -> block.0.dk #1\n"
	    "copy block.0.dv_new -> block.0.dv\n"
	    "linear_dx block.0.dq block.0.attn.q.weight -> block.0.dn1.1\n"
	    "linear_dx block.0.dk block.0.attn.k.weight -> block.0.dn1_k\n"
	    "add block.0.dn1.1 block.0.dn1_k -> block.0.dn1.2\n"
	    "linear_dx block.0.dv block.0.attn.v.weight -> block.0.dn1_v\n"
	    "add block.0.dn1.2 block.0.dn1_v -> block.0.dn1\n"
	    "norm_dx block.0.dn1 block.0.x block.0.norm1.weight - block.0.rstd1 -> din.1 #1\n"
	    "add block.0.dx2 din.1 -> din\n");
	assert_instructions(
	    &built, 1, PP_PHASE_W,
	    "linear_dw block.0.dy block.0.g -> block.0.mlp.down.weight.grad -\n"
	    "linear_dw block.0.df block.0.n2 -> block.0.mlp.gate.weight.grad -\n"
	    "linear_dw block.0.du block.0.n2 -> block.0.mlp.up.weight.grad -\n"
	    "norm_dw block.0.dn2 block.0.x2 - block.0.rstd2 -> block.0.norm2.weight.grad - #1\n"
	    "linear_dw block.0.dx2 block.0.o -> block.0.attn.o.weight.grad -\n"
	    "norm_dw block.0.dq_normed block.0.q_plain - block.0.q_rstd -> block.0.attn.q_norm.weight.grad - #1\n"
	    "norm_dw block.0.dk_normed block.0.k_plain - block.0.k_rstd -> block.0.attn.k_norm.weight.grad - #1\n"
	    "linear_dw block.0.dq block.0.n1 -> block.0.attn.q.weight.grad -\n"
	    "linear_dw block.0.dk block.0.n1 -> block.0.attn.k.weight.grad -\n"
	    "linear_dw block.0.dv block.0.n1 -> block.0.attn.v.weight.grad -\n"
	    "norm_dw block.0.dn1 block.0.x - block.0.rstd1 -> block.0.norm1.weight.grad - #1\n");
	pp_arena_destroy(built.arena);
}

static void registers_lie_where_the_layout_says(void **state)
{
	(void)state;
	struct built built = built_of(&tiny);
	const uint32_t three[] = {0, 1, 2};
	build_bodies(&built, three, 3, 3, SPLIT);
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	body_print_registers(body_of(&built, 2, PP_PHASE_F), out);
	body_print_registers(body_of(&built, 1, PP_PHASE_W), out);
	fclose(out);
	assert_string_equal(
	    text, "in = in+0 f32[4,8]\nlabels = aux+0 i32[4,1]\nloss = loss+0 f64[2,1]\n"
	          "norm.x = stash+0 f32[4,8]\nhead.x = stash+256 f32[4,8]\n"
	          "norm.weight = weight.0+0 f32[8,1]\nnorm.bias = weight.1+0 f32[8,1]\n"
	          "norm.mean = stash+128 f32[4,1]\nnorm.rstd = stash+192 f32[4,1]\n"
	          "head.logits = stash+384 f32[4,16]\nhead.weight = weight.2+0 f32[16,8]\n"
	          "head.logits.1 = stash+384 f32[4,16]\n"
	          "block.0.dy = extra+0 f32[4,8]\nblock.0.df = stash+1344 f32[4,32]\nblock.0.dn2 = extra+128 f32[4,8]\n"
	          "block.0.dx2 = extra+256 f32[4,8]\nblock.0.x2 = stash+960 f32[4,8]\nblock.0.g = stash+1856 f32[4,32]\n"
	          "block.0.mlp.fc2.weight.grad = grad.30+0 f32[8,32]\nblock.0.mlp.fc2.bias.grad = grad.31+0 f32[8,1]\n"
	          "block.0.n2 = stash+1216 f32[4,8]\n"
	          "block.0.mlp.fc1.weight.grad = grad.28+0 f32[32,8]\nblock.0.mlp.fc1.bias.grad = grad.29+0 f32[32,1]\n"
	          "block.0.mean2 = stash+1088 f32[4,1]\nblock.0.rstd2 = stash+1152 f32[4,1]\n"
	          "block.0.norm2.weight.grad = grad.26+0 f32[8,1]\nblock.0.norm2.bias.grad = grad.27+0 f32[8,1]\n"
	          "block.0.x = stash+0 f32[4,8]\nblock.0.n1 = stash+256 f32[4,8]\nblock.0.dn1 = extra+384 f32[4,8]\n"
	          "block.0.o = stash+768 f32[4,8]\n"
	          "block.0.attn.o.weight.grad = grad.24+0 f32[8,8]\nblock.0.attn.o.bias.grad = grad.25+0 f32[8,1]\n"
	          "block.0.dq = stash+384 f32[4,8]\nblock.0.dk = stash+512 f32[4,8]\nblock.0.dv = stash+640 f32[4,8]\n"
	          "block.0.attn.q.weight.grad = grad.18+0 f32[8,8]\nblock.0.attn.q.bias.grad = grad.19+0 f32[8,1]\n"
	          "block.0.attn.k.weight.grad = grad.20+0 f32[8,8]\nblock.0.attn.k.bias.grad = grad.21+0 f32[8,1]\n"
	          "block.0.attn.v.weight.grad = grad.22+0 f32[8,8]\nblock.0.attn.v.bias.grad = grad.23+0 f32[8,1]\n"
	          "block.0.mean1 = stash+128 f32[4,1]\nblock.0.rstd1 = stash+192 f32[4,1]\n"
	          "block.0.norm1.weight.grad = grad.16+0 f32[8,1]\nblock.0.norm1.bias.grad = grad.17+0 f32[8,1]\n");
	free(text);
	pp_arena_destroy(built.arena);
}

/* ---- bodies against counts ------------------------------------------------------------------- */

/* Every layer a stage of its own: the counts are what the bodies do, in every phase, form and dtype. */
static void counts_are_what_bodies_do(void **state)
{
	(void)state;
	static const struct model_size grouped = {32, 8, 2, 2, 40, 24, 6, 3, true};
	static const uint32_t each[] = {0, 1, 2, 3, 4};
	for (unsigned i = 0; i < 9 * RECOMPUTES; i++) {
		unsigned variant = i / RECOMPUTES;
		struct built built = built_of(&grouped);
		if (variant == 4 || variant == 5)
			make_llama(&built, variant == 5);
		for (uint32_t l = 0; l < 5 && variant != 4 && variant != 5; l++) {
			struct pp_layer *layer = &built.spec->model.layers[l];
			layer->bias = variant != 1 && variant != 7;
			layer->qkv_bias = variant == 7;
			layer->rms = variant == 2;
			layer->act = variant == 6 || variant == 8 ? PP_ACT_SWIGLU : PP_ACT_GELU;
			layer->rope_theta = variant == 7 ? 10000 : 0;
			layer->qk_norm = variant == 6 || variant == 8;
		}
		built.spec->dtype = variant == 3 || variant == 8 ? PP_BF16 : PP_F32;
		recompute_blocks(&built, recompute_variant(i));
		build_bodies(&built, each, 5, 5, MIXED);
		for (uint32_t l = 0; l < 5; l++) {
			const struct pp_layer_counts *counts = &built.stages.layers[l];
			const struct pp_stage *stage = &built.program->stages[l];
			assert_int_equal(stage->recomputes, built.spec->model.layers[l].recompute != 0);
			assert_int_equal(stage->body[PP_PHASE_R] != PP_NULL, stage->recomputes);
			for (unsigned phase = 0; phase < (stage->recomputes ? PP_PHASE_COUNT : PP_PHASE_R); phase++) {
				uint64_t matmul, attention, traffic;
				measure(body_of(&built, l, (enum pp_phase)phase), &matmul, &attention, &traffic);
				assert_int_equal(matmul, counts->matmul_flops[phase]);
				assert_int_equal(attention, counts->attention_flops[phase]);
				assert_int_equal(traffic, counts->memory_bytes[phase]);
				assert_int_equal(stage->flops[phase], matmul + attention);
				assert_int_equal(stage->ticks[phase], built.stages.layer_ticks[l][phase]);
			}
			assert_int_equal(stage->stash_bytes, counts->stash_bytes);
			assert_int_equal(stage->extra_bytes, counts->extra_bytes + counts->split_bytes);
			assert_int_equal(stage->out_count * pp_dtype_size[stage->out_dtype], counts->output_bytes);
		}
		pp_arena_destroy(built.arena);
	}
}

/* Stash and extra of a stage are the sums of its layers'; its workspace is that of its hungriest layer. */
static void stage_bytes_are_those_of_layers(void **state)
{
	(void)state;
	static const struct model_size wide = {16, 4, 4, 4, 64, 80, 8, 2, false},
	                               narrow = {48, 4, 1, 4, 20, 10, 5, 1, true};
	static const uint32_t first[] = {0, 2, 4};
	static const uint8_t phases[] = {FUSED, SPLIT, MIXED};
	const struct model_size *sizes[] = {&wide, &narrow, &demo_model};
	for (unsigned n = 0; n < 27 * RECOMPUTES; n++) {
		unsigned i = n / RECOMPUTES;
		struct built built = built_of(sizes[i / 3 % 3]);
		if (i >= 9)
			make_llama(&built, i >= 18);
		recompute_blocks(&built, recompute_variant(n));
		build_bodies(&built, first, 3, 3, phases[i % 3]);
		for (uint32_t s = 0; s < 3; s++) {
			const struct pp_stage_plan *item = &built.stages.items[s];
			uint64_t work = 0, most = 0;
			for (unsigned phase = 0; phase < PP_PHASE_COUNT; phase++)
				if (built.program->stages[s].body[phase] != PP_NULL &&
				    body_of(&built, s, (enum pp_phase)phase)->work_bytes > work)
					work = body_of(&built, s, (enum pp_phase)phase)->work_bytes;
			for (uint32_t l = item->first_layer; l < item->first_layer + item->layer_count; l++)
				most = built.stages.layers[l].work_bytes > most ? built.stages.layers[l].work_bytes : most;
			assert_int_equal(built.program->stages[s].stash_bytes, item->stash_bytes);
			assert_int_equal(built.program->stages[s].extra_bytes,
			                 item->extra_bytes + (phases[i % 3] == FUSED ? 0 : item->split_bytes));
			assert_true(work <= most);
			if (s == 1 && phases[i % 3] != SPLIT &&
			    n % RECOMPUTES == 0) /* blocks only: the gradient between them is in workspace */
				assert_int_equal(work, most);
			const struct pp_rank *rank = &built.program->rank[s];
			assert_int_equal(rank->slots[rank->slot_count - 1].class, PP_SLOT_WORK);
			assert_int_equal(rank->slots[rank->slot_count - 1].bytes, work);
		}
		pp_arena_destroy(built.arena);
	}
}

/* ---- tensors and slots ----------------------------------------------------------------------- */

static uint64_t slot_bytes(const struct pp_program *program, uint32_t rank, enum pp_slot_class class)
{
	uint64_t total = 0;
	for (uint32_t i = 0; i < program->rank[rank].slot_count; i++)
		total += program->rank[rank].slots[i].class == class ? program->rank[rank].slots[i].bytes : 0;
	return total;
}

static void tensors_of_a_model(void **state)
{
	(void)state;
	static const struct model_size two_blocks = {8, 2, 2, 2, 32, 16, 4, 1, true};
	static const uint32_t whole[] = {0};
	struct built built = built_of(&two_blocks);
	build_bodies(&built, whole, 1, 1, FUSED);
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	for (uint32_t t = 0; t < 18; t++) {
		const struct pp_tensor *tensor = &built.program->tensors[t];
		fprintf(out, "%s [%u,%u] %s %s %u%s %g\n", tensor->name, tensor->rows, tensor->columns,
		        pp_init_name[tensor->init], pp_tp_grad_name[tensor->tp_grad], tensor->shard,
		        tensor->decay ? " decay" : "", tensor->std);
	}
	fclose(out);
	assert_string_equal(text, "emb.weight [16,8] normal sharded 0 decay 0.02\n"
	                          "emb.position [4,8] normal replicated_equal 255 decay 0.02\n"
	                          "block.0.norm1.weight [8,1] one replicated_equal 255 0\n"
	                          "block.0.norm1.bias [8,1] zero replicated_equal 255 0\n"
	                          "block.0.attn.q.weight [8,8] normal sharded 0 decay 0.02\n"
	                          "block.0.attn.q.bias [8,1] zero sharded 0 0\n"
	                          "block.0.attn.k.weight [8,8] normal sharded 0 decay 0.02\n"
	                          "block.0.attn.k.bias [8,1] zero sharded 0 0\n"
	                          "block.0.attn.v.weight [8,8] normal sharded 0 decay 0.02\n"
	                          "block.0.attn.v.bias [8,1] zero sharded 0 0\n"
	                          "block.0.attn.o.weight [8,8] normal sharded 1 decay 0.01\n"
	                          "block.0.attn.o.bias [8,1] zero replicated_equal 255 0\n"
	                          "block.0.norm2.weight [8,1] one replicated_equal 255 0\n"
	                          "block.0.norm2.bias [8,1] zero replicated_equal 255 0\n"
	                          "block.0.mlp.fc1.weight [32,8] normal sharded 0 decay 0.02\n"
	                          "block.0.mlp.fc1.bias [32,1] zero sharded 0 0\n"
	                          "block.0.mlp.fc2.weight [8,32] normal sharded 1 decay 0.01\n"
	                          "block.0.mlp.fc2.bias [8,1] zero replicated_equal 255 0\n");
	free(text);
	assert_int_equal(built.program->tensor_count, 2 + 2 * 16 + 2);
	assert_string_equal(built.program->tensors[18].name, "block.1.norm1.weight");
	assert_string_equal(built.program->tensors[35].name, "norm.bias");
	pp_arena_destroy(built.arena);
}

static void tensors_of_a_llama(void **state)
{
	(void)state;
	static const struct model_size grouped = {8, 2, 1, 2, 12, 16, 4, 1, false};
	static const uint32_t whole[] = {0};
	struct built built = built_of(&grouped);
	make_llama(&built, true);
	build_bodies(&built, whole, 1, 1, FUSED);
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	for (uint32_t t = 0; t < 12; t++) {
		const struct pp_tensor *tensor = &built.program->tensors[t];
		fprintf(out, "%s [%u,%u] %s %s %u%s %g\n", tensor->name, tensor->rows, tensor->columns,
		        pp_init_name[tensor->init], pp_tp_grad_name[tensor->tp_grad], tensor->shard,
		        tensor->decay ? " decay" : "", tensor->std);
	}
	fclose(out);
	assert_string_equal(text, "emb.weight [16,8] normal sharded 0 decay 0.02\n"
	                          "block.0.norm1.weight [8,1] one replicated_equal 255 0\n"
	                          "block.0.attn.q.weight [8,8] normal sharded 0 decay 0.02\n"
	                          "block.0.attn.k.weight [4,8] normal sharded 0 decay 0.02\n"
	                          "block.0.attn.v.weight [4,8] normal sharded 0 decay 0.02\n"
	                          "block.0.attn.q_norm.weight [4,1] one replicated_partial 255 0\n"
	                          "block.0.attn.k_norm.weight [4,1] one replicated_partial 255 0\n"
	                          "block.0.attn.o.weight [8,8] normal sharded 1 decay 0.01\n"
	                          "block.0.norm2.weight [8,1] one replicated_equal 255 0\n"
	                          "block.0.mlp.gate.weight [12,8] normal sharded 0 decay 0.02\n"
	                          "block.0.mlp.up.weight [12,8] normal sharded 0 decay 0.02\n"
	                          "block.0.mlp.down.weight [8,12] normal sharded 1 decay 0.01\n");
	free(text);
	assert_int_equal(built.program->tensor_count, 1 + 2 * 11 + 2);
	pp_arena_destroy(built.arena);
}

/* The tied table has two uses; on one rank they share weight and moments and have a gradient each. */
static void tied_uses(void **state)
{
	(void)state;
	static const uint32_t whole[] = {0}, two[] = {0, 3}, three[] = {0, 2, 4};
	const uint64_t table = 64000 * 4;
	for (unsigned i = 0; i < 3; i++) {
		struct built built = built_of(&field_b13);
		if (i == 0)
			build_bodies(&built, whole, 1, 1, FUSED);
		else if (i == 1)
			build_bodies(&built, two, 2, 2, FUSED);
		else
			build_bodies(&built, three, 3, 2, FUSED); /* both ends on rank 0 */
		const struct pp_program *program = built.program;
		const struct pp_use *uses = program->uses;
		assert_int_equal(program->use_count, program->tensor_count + 1);
		assert_int_equal(uses[0].tensor, 0);
		assert_int_equal(uses[1].tensor, 0);
		assert_int_equal(uses[0].stage, 0);
		assert_int_equal(uses[1].stage, i);
		uint64_t unique = 0, weights = 0, grads = 0, moments = 0;
		for (uint32_t t = 0; t < program->tensor_count; t++)
			unique += 4ull * program->tensors[t].rows * program->tensors[t].columns;
		for (uint32_t r = 0; r < program->ranks; r++) {
			weights += slot_bytes(program, r, PP_SLOT_WEIGHT);
			grads += slot_bytes(program, r, PP_SLOT_GRAD);
			moments += slot_bytes(program, r, PP_SLOT_MOMENT);
			uint64_t planned = 0;
			for (uint32_t s = 0; s < program->stage_count; s++)
				planned += built.stages.items[s].rank == r ? built.stages.items[s].static_bytes : 0;
			assert_int_equal(planned, slot_bytes(program, r, PP_SLOT_WEIGHT) + slot_bytes(program, r, PP_SLOT_GRAD) +
			                              slot_bytes(program, r, PP_SLOT_MOMENT));
			assert_int_equal(slot_bytes(program, r, PP_SLOT_LOSSES), 16 * 4);
			assert_int_equal(slot_bytes(program, r, PP_SLOT_NORMS), 8 * program->tensor_count);
			assert_int_equal(slot_bytes(program, r, PP_SLOT_SCALE), 32);
		}
		assert_int_equal(weights, unique + (i == 1 ? table : 0));
		assert_int_equal(moments, 2 * weights);
		assert_int_equal(grads, unique + table);
		if (i != 1) {
			assert_int_equal(uses[0].weight, uses[1].weight);
			assert_int_not_equal(uses[0].grad, uses[1].grad);
		}
		pp_arena_destroy(built.arena);
	}
}

static void sgd_has_no_moments(void **state)
{
	(void)state;
	static const uint32_t whole[] = {0};
	struct built built = built_of(&tiny);
	built.spec->train.optimizer = PP_SGD;
	build_bodies(&built, whole, 1, 1, FUSED);
	assert_int_equal(slot_bytes(built.program, 0, PP_SLOT_MOMENT), 0);
	assert_int_equal(slot_bytes(built.program, 0, PP_SLOT_WEIGHT) + slot_bytes(built.program, 0, PP_SLOT_GRAD),
	                 built.stages.items[0].static_bytes);
	pp_arena_destroy(built.arena);
}

/* ---- ends of stages, custom layers ----------------------------------------------------------- */

static void data_of_stages(void **state)
{
	(void)state;
	static const uint32_t two[] = {0, 2}, whole[] = {0};
	struct built built = built_of(&tiny);
	build_bodies(&built, two, 2, 2, FUSED);
	const struct pp_stage *stages = built.program->stages;
	assert_string_equal(stages[0].title, "emb, block[0]");
	assert_string_equal(stages[1].title, "norm, head");
	assert_true(stages[0].loads_tokens && !stages[0].loads_labels && !stages[1].loads_tokens && stages[1].loads_labels);
	assert_int_equal(stages[0].aux_bytes, 16);
	assert_int_equal(stages[0].out_count, 32);
	assert_int_equal(stages[1].out_count, 0);
	built.spec->train.mean = PP_MB_MEAN;
	build_bodies(&built, whole, 1, 1, FUSED);
	const struct pp_body *body = body_of(&built, 0, PP_PHASE_F);
	assert_int_equal(built.program->stages[0].aux_bytes, 32);
	assert_string_equal(body->regs[body->items[15].operand[1]].name, "labels");
	assert_int_equal(body->regs[body->items[15].operand[1]].offset, 16);
	assert_int_equal(body->items[15].imm[1], 1);
	pp_arena_destroy(built.arena);
}

static void long_titles_are_cut(void **state)
{
	(void)state;
	struct built built = built_of(&tiny);
	static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"};
	static const uint32_t whole[] = {0};
	built.spec->model.layers = PP_NEW_ARRAY(built.arena, struct pp_layer, 10);
	built.spec->model.layer_count = 10;
	built.spec->model.trains = false;
	for (unsigned i = 0; i < 10; i++)
		built.spec->model.layers[i] = fixture_custom(&tiny, names[i], (struct pp_custom){0});
	build_bodies(&built, whole, 1, 1, FUSED);
	assert_string_equal(built.program->stages[0].title, "a, b, c, d, e, f, g, h and 2 more");
	pp_arena_destroy(built.arena);
}

/* Only custom layers: sleeps, filled messages, planned parameters; no data, no losses, no tail. */
static void custom_model(void **state)
{
	(void)state;
	struct built built = built_of(&tiny);
	struct pp_custom work = {
	    .params = 100, .activation = 1000, .output = 24, .time_f = 3000, .time_i = 2000, .time_w = 1000};
	struct pp_layer layers[3] = {fixture_custom(&tiny, "a", work), fixture_custom(&tiny, "b", work),
	                             fixture_custom(&tiny, "c", work)};
	layers[1].custom.time_w = 0;
	static const uint32_t two[] = {0, 2};
	built.spec->model.layers = layers;
	built.spec->model.layer_count = 3;
	built.spec->model.trains = false;
	build_bodies(&built, two, 2, 2, MIXED);
	const struct pp_program *program = built.program;
	assert_instructions(&built, 0, PP_PHASE_F, "sleep #3000\nsleep #3000\nfill -> out\n");
	assert_instructions(&built, 0, PP_PHASE_B, "sleep #2000\nsleep #3000\n");
	assert_instructions(&built, 0, PP_PHASE_W, "sleep #1000\n");
	assert_instructions(&built, 1, PP_PHASE_F, "sleep #3000\n");
	assert_instructions(&built, 1, PP_PHASE_B, "sleep #3000\nfill -> din\n");
	assert_instructions(&built, 1, PP_PHASE_W, "sleep #1000\n");
	assert_int_equal(program->stages[0].out_count, 6);
	assert_int_equal(program->stages[0].aux_bytes, 0);
	assert_int_equal(program->stages[0].stash_bytes, 2 * 1024);
	assert_int_equal(program->tensor_count, 0);
	assert_int_equal(slot_bytes(program, 0, PP_SLOT_WEIGHT), 2 * 400);
	assert_int_equal(slot_bytes(program, 0, PP_SLOT_GRAD), 2 * 400);
	assert_int_equal(slot_bytes(program, 0, PP_SLOT_MOMENT), 2 * 800);
	assert_int_equal(program->rank[1].slot_count, 4);
	pp_arena_destroy(built.arena);
}

/* A custom layer among trained ones passes the hidden state and its gradient on; an empty stage copies both. */
static void custom_layers_among_trained_ones(void **state)
{
	(void)state;
	struct built built = built_of(&tiny);
	struct pp_layer layers[6];
	struct pp_custom work = {.activation = 64, .output = 4000, .time_f = 30, .time_i = 20, .time_w = 10};
	memcpy(layers, built.spec->model.layers, 1 * sizeof *layers);
	layers[1] = fixture_custom(&tiny, "cross", work);
	memcpy(layers + 2, built.spec->model.layers + 2, 2 * sizeof *layers);
	static const uint32_t first[] = {0, 2, 2};
	built.spec->model.layers = layers;
	built.spec->model.layer_count = 4; /* emb, cross, norm, head */
	build_bodies(&built, first, 3, 3, MIXED);
	assert_instructions(&built, 0, PP_PHASE_F, "embed ids emb.weight emb.position -> out #4\nsleep #30\n");
	assert_instructions(&built, 0, PP_PHASE_B,
	                    "sleep #30\nembed_dw ids dout -> emb.weight.grad emb.position.grad #4\n");
	assert_instructions(&built, 0, PP_PHASE_I, "sleep #20\ncopy dout -> emb.dy\n");
	assert_instructions(&built, 0, PP_PHASE_W,
	                    "sleep #10\nembed_dw ids emb.dy -> emb.weight.grad emb.position.grad #4\n");
	assert_int_equal(built.program->stages[0].stash_bytes, 64);
	assert_int_equal(built.program->stages[0].extra_bytes, 128);
	assert_int_equal(built.program->stages[0].out_count, 32);
	assert_string_equal(built.program->stages[1].title, "empty");
	assert_instructions(&built, 1, PP_PHASE_F, "copy in -> out\n");
	assert_instructions(&built, 1, PP_PHASE_B, "copy dout -> din\n");
	assert_instructions(&built, 1, PP_PHASE_W, "");
	static const uint32_t whole[] = {0};
	build_bodies(&built, whole, 1, 1, FUSED);
	assert_instructions(
	    &built, 0, PP_PHASE_F,
	    "embed ids emb.weight emb.position -> norm.x #4\nsleep #30\nnorm norm.x norm.weight norm.bias -> head.x "
	    "norm.mean norm.rstd #0\n"
	    "linear head.x head.weight - -> head.logits.1\nxent head.logits.1 labels -> head.logits loss #16 #0\n");
	pp_arena_destroy(built.arena);
}

/* A custom layer before the embedding sends its own message; the embedding's stage answers with zeros. */
static void custom_layer_before_the_embedding(void **state)
{
	(void)state;
	struct built built = built_of(&tiny);
	struct pp_layer layers[4];
	layers[0] =
	    fixture_custom(&tiny, "patch", (struct pp_custom){.output = 40, .time_f = 30, .time_i = 20, .time_w = 10});
	layers[1] = built.spec->model.layers[0];
	memcpy(layers + 2, built.spec->model.layers + 2, 2 * sizeof *layers);
	static const uint32_t two[] = {0, 1};
	built.spec->model.layers = layers;
	built.spec->model.layer_count = 4;
	build_bodies(&built, two, 2, 2, FUSED);
	assert_int_equal(built.program->stages[0].out_count, 10);
	assert_instructions(&built, 0, PP_PHASE_F, "sleep #30\nfill -> out\n");
	assert_instructions(&built, 0, PP_PHASE_B, "sleep #30\n");
	assert_instructions(&built, 1, PP_PHASE_B,
	                    "linear_dx head.logits head.weight -> norm.dy\n"
	                    "linear_dw head.logits head.x -> head.weight.grad -\n"
	                    "norm_dx norm.dy norm.x norm.weight norm.mean norm.rstd -> emb.dy #0\n"
	                    "norm_dw norm.dy norm.x norm.mean norm.rstd -> norm.weight.grad norm.bias.grad #0\n"
	                    "embed_dw ids emb.dy -> emb.weight.grad emb.position.grad #4\n"
	                    "fill -> din\n");
	pp_arena_destroy(built.arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(forward_and_fused_backward),
	    cmocka_unit_test(split_backward),
	    cmocka_unit_test(llama_forward_and_backward),
	    cmocka_unit_test(registers_lie_where_the_layout_says),
	    cmocka_unit_test(counts_are_what_bodies_do),
	    cmocka_unit_test(stage_bytes_are_those_of_layers),
	    cmocka_unit_test(tensors_of_a_model),
	    cmocka_unit_test(tensors_of_a_llama),
	    cmocka_unit_test(tied_uses),
	    cmocka_unit_test(sgd_has_no_moments),
	    cmocka_unit_test(data_of_stages),
	    cmocka_unit_test(long_titles_are_cut),
	    cmocka_unit_test(custom_model),
	    cmocka_unit_test(custom_layers_among_trained_ones),
	    cmocka_unit_test(custom_layer_before_the_embedding),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
