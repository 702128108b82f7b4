/* Bodies of stages: whole instruction lists, stash and workspace against the counts, slots, ends of stages. */
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
	assert_instructions(&built, 0, PP_PHASE_F,
	    "embed ids emb.weight emb.position -> block.0.x #4\n"
	    "norm block.0.x block.0.norm1.weight block.0.norm1.bias -> block.0.n1 block.0.mean1 block.0.rstd1 #0\n"
	    "linear block.0.n1 block.0.attn.q.weight block.0.attn.q.bias -> block.0.q\n"
	    "linear block.0.n1 block.0.attn.k.weight block.0.attn.k.bias -> block.0.k\n"
	    "linear block.0.n1 block.0.attn.v.weight block.0.attn.v.bias -> block.0.v\n"
	    "attn block.0.q block.0.k block.0.v -> block.0.o block.0.lse #4 #2 #2 #0\n"
	    "linear block.0.o block.0.attn.o.weight block.0.attn.o.bias -> block.0.x2\n"
	    "add block.0.x block.0.x2 -> block.0.x2\n"
	    "norm block.0.x2 block.0.norm2.weight block.0.norm2.bias -> block.0.n2 block.0.mean2 block.0.rstd2 #0\n"
	    "linear block.0.n2 block.0.mlp.fc1.weight block.0.mlp.fc1.bias -> block.0.f\n"
	    "act block.0.f -> block.0.g #1\n"
	    "linear block.0.g block.0.mlp.fc2.weight block.0.mlp.fc2.bias -> norm.x\n"
	    "add block.0.x2 norm.x -> norm.x\n"
	    "norm norm.x norm.weight norm.bias -> head.x norm.mean norm.rstd #0\n"
	    "linear head.x head.weight - -> head.logits\n"
	    "xent head.logits labels -> head.logits loss #16 #0\n");
	assert_instructions(&built, 0, PP_PHASE_B,
	    "linear_dx head.logits head.weight -> norm.dy\n"
	    "linear_dw head.logits head.x -> head.weight.grad -\n"
	    "norm_dx norm.dy norm.x norm.weight norm.mean norm.rstd -> block.0.dy #0\n"
	    "norm_dw norm.dy norm.x norm.mean norm.rstd -> norm.weight.grad norm.bias.grad #0\n"
	    "linear_dx block.0.dy block.0.mlp.fc2.weight -> block.0.df\n"
	    "linear_dw block.0.dy block.0.g -> block.0.mlp.fc2.weight.grad block.0.mlp.fc2.bias.grad\n"
	    "act_dx block.0.df block.0.f -> block.0.df #1\n"
	    "linear_dx block.0.df block.0.mlp.fc1.weight -> block.0.dn2\n"
	    "linear_dw block.0.df block.0.n2 -> block.0.mlp.fc1.weight.grad block.0.mlp.fc1.bias.grad\n"
	    "norm_dx block.0.dn2 block.0.x2 block.0.norm2.weight block.0.mean2 block.0.rstd2 -> block.0.dx2 #0\n"
	    "norm_dw block.0.dn2 block.0.x2 block.0.mean2 block.0.rstd2 -> block.0.norm2.weight.grad block.0.norm2.bias.grad #0\n"
	    "add block.0.dy block.0.dx2 -> block.0.dx2\n"
	    "linear_dx block.0.dx2 block.0.attn.o.weight -> block.0.do\n"
	    "linear_dw block.0.dx2 block.0.o -> block.0.attn.o.weight.grad block.0.attn.o.bias.grad\n"
	    "attn_dx block.0.do block.0.q block.0.k block.0.v block.0.o block.0.lse -> block.0.dq block.0.dk block.0.dv #4 #2 #2 #0\n"
	    "linear_dx block.0.dq block.0.attn.q.weight -> block.0.dn1\n"
	    "linear_dw block.0.dq block.0.n1 -> block.0.attn.q.weight.grad block.0.attn.q.bias.grad\n"
	    "linear_dx block.0.dk block.0.attn.k.weight -> block.0.dn1_k\n"
	    "linear_dw block.0.dk block.0.n1 -> block.0.attn.k.weight.grad block.0.attn.k.bias.grad\n"
	    "add block.0.dn1 block.0.dn1_k -> block.0.dn1\n"
	    "linear_dx block.0.dv block.0.attn.v.weight -> block.0.dn1_v\n"
	    "linear_dw block.0.dv block.0.n1 -> block.0.attn.v.weight.grad block.0.attn.v.bias.grad\n"
	    "add block.0.dn1 block.0.dn1_v -> block.0.dn1\n"
	    "norm_dw block.0.dn1 block.0.x block.0.mean1 block.0.rstd1 -> block.0.norm1.weight.grad block.0.norm1.bias.grad #0\n"
	    "norm_dx block.0.dn1 block.0.x block.0.norm1.weight block.0.mean1 block.0.rstd1 -> emb.dy #0\n"
	    "add block.0.dx2 emb.dy -> emb.dy\n"
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
	assert_instructions(&built, 1, PP_PHASE_I,
	    "copy dout -> block.0.dy\n"
	    "linear_dx block.0.dy block.0.mlp.fc2.weight -> block.0.dg\n"
	    "act_dx block.0.dg block.0.f -> block.0.df #1\n"
	    "linear_dx block.0.df block.0.mlp.fc1.weight -> block.0.dn2\n"
	    "norm_dx block.0.dn2 block.0.x2 block.0.norm2.weight block.0.mean2 block.0.rstd2 -> block.0.dx2 #0\n"
	    "add block.0.dy block.0.dx2 -> block.0.dx2\n"
	    "linear_dx block.0.dx2 block.0.attn.o.weight -> block.0.do\n"
	    "attn_dx block.0.do block.0.q block.0.k block.0.v block.0.o block.0.lse -> block.0.dq_new block.0.dk_new block.0.dv_new #4 #2 #2 #0\n"
	    "copy block.0.dq_new -> block.0.dq\n"
	    "copy block.0.dk_new -> block.0.dk\n"
	    "copy block.0.dv_new -> block.0.dv\n"
	    "linear_dx block.0.dq block.0.attn.q.weight -> block.0.dn1\n"
	    "linear_dx block.0.dk block.0.attn.k.weight -> block.0.dn1_k\n"
	    "add block.0.dn1 block.0.dn1_k -> block.0.dn1\n"
	    "linear_dx block.0.dv block.0.attn.v.weight -> block.0.dn1_v\n"
	    "add block.0.dn1 block.0.dn1_v -> block.0.dn1\n"
	    "norm_dx block.0.dn1 block.0.x block.0.norm1.weight block.0.mean1 block.0.rstd1 -> din #0\n"
	    "add block.0.dx2 din -> din\n");
	assert_instructions(&built, 1, PP_PHASE_W,
	    "linear_dw block.0.dy block.0.g -> block.0.mlp.fc2.weight.grad block.0.mlp.fc2.bias.grad\n"
	    "linear_dw block.0.df block.0.n2 -> block.0.mlp.fc1.weight.grad block.0.mlp.fc1.bias.grad\n"
	    "norm_dw block.0.dn2 block.0.x2 block.0.mean2 block.0.rstd2 -> block.0.norm2.weight.grad block.0.norm2.bias.grad #0\n"
	    "linear_dw block.0.dx2 block.0.o -> block.0.attn.o.weight.grad block.0.attn.o.bias.grad\n"
	    "linear_dw block.0.dq block.0.n1 -> block.0.attn.q.weight.grad block.0.attn.q.bias.grad\n"
	    "linear_dw block.0.dk block.0.n1 -> block.0.attn.k.weight.grad block.0.attn.k.bias.grad\n"
	    "linear_dw block.0.dv block.0.n1 -> block.0.attn.v.weight.grad block.0.attn.v.bias.grad\n"
	    "norm_dw block.0.dn1 block.0.x block.0.mean1 block.0.rstd1 -> block.0.norm1.weight.grad block.0.norm1.bias.grad #0\n");
	assert_instructions(&built, 0, PP_PHASE_F, "embed ids emb.weight emb.position -> out #4\n");
	assert_instructions(&built, 0, PP_PHASE_I, "copy dout -> emb.dy\n");
	assert_instructions(&built, 0, PP_PHASE_W, "embed_dw ids emb.dy -> emb.weight.grad emb.position.grad #4\n");
	assert_instructions(&built, 2, PP_PHASE_I,
	    "linear_dx head.logits head.weight -> norm.dy\n"
	    "norm_dx norm.dy norm.x norm.weight norm.mean norm.rstd -> din #0\n");
	assert_true(built.program->stages[0].body[PP_PHASE_B] == PP_NULL);
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
	assert_string_equal(text,
	    "in = in+0 f32[4,8]\nlabels = aux+0 i32[4,1]\nloss = loss+0 f64[2,1]\n"
	    "norm.x = stash+0 f32[4,8]\nhead.x = stash+384 f32[4,8]\n"
	    "norm.weight = weight.0+0 f32[8,1]\nnorm.bias = weight.1+0 f32[8,1]\n"
	    "norm.mean = stash+128 f32[4,1]\nnorm.rstd = stash+192 f32[4,1]\n"
	    "head.logits = stash+512 f32[4,16]\nhead.weight = weight.2+0 f32[16,8]\n"
	    "block.0.dy = stash+2368 f32[4,8]\nblock.0.df = stash+1344 f32[4,32]\nblock.0.dn2 = stash+2496 f32[4,8]\n"
	    "block.0.dx2 = stash+2624 f32[4,8]\nblock.0.x2 = stash+960 f32[4,8]\nblock.0.g = stash+1856 f32[4,32]\n"
	    "block.0.mlp.fc2.weight.grad = grad.30+0 f32[8,32]\nblock.0.mlp.fc2.bias.grad = grad.31+0 f32[8,1]\n"
	    "block.0.n2 = stash+1216 f32[4,8]\n"
	    "block.0.mlp.fc1.weight.grad = grad.28+0 f32[32,8]\nblock.0.mlp.fc1.bias.grad = grad.29+0 f32[32,1]\n"
	    "block.0.mean2 = stash+1088 f32[4,1]\nblock.0.rstd2 = stash+1152 f32[4,1]\n"
	    "block.0.norm2.weight.grad = grad.26+0 f32[8,1]\nblock.0.norm2.bias.grad = grad.27+0 f32[8,1]\n"
	    "block.0.x = stash+0 f32[4,8]\nblock.0.n1 = stash+256 f32[4,8]\nblock.0.dn1 = stash+2752 f32[4,8]\n"
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

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(forward_and_fused_backward),
	    cmocka_unit_test(split_backward),
	    cmocka_unit_test(registers_lie_where_the_layout_says),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
