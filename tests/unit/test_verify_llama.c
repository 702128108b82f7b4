/* V10 on the instructions that blocks of Llama's kind add. */
#include "body_mutants.h"

/* emb | block of Llama's kind with qk-norm, 4 and 2 heads | norm head, on three ranks, all phases. */
static struct built llama_again(uint8_t recompute)
{
	static const struct model_size grouped = {8, 4, 2, 1, 12, 16, 4, 1, false};
	static const uint32_t first[] = {0, 1, 2};
	struct built built = built_of(&grouped);
	for (uint32_t l = 0; l < built.spec->model.layer_count; l++) {
		struct pp_layer *layer = &built.spec->model.layers[l];
		layer->bias = false;
		layer->rms = true;
		layer->act = PP_ACT_SWIGLU;
		layer->rope_theta = 10000;
		layer->qk_norm = true;
	}
	recompute_blocks(&built, recompute);
	build_bodies(&built, first, 3, 3, MIXED);
	return built;
}
static struct built three_llama_stages(void)
{
	return llama_again(0);
}
static struct built all_again(void)
{
	return llama_again(PP_RECOMPUTE_FULL);
}
static struct built norms_again(void)
{
	return llama_again(PP_RECOMPUTE_NORM | PP_RECOMPUTE_ATTENTION);
}

/* Of the block's F: 2 linear q, 3 norm q, 4 rope q, 9 attn, 15 swiglu; of its I: 2 swiglu_dx, 10 rope_dx q, 11 norm_dx
 * q; of its W: 5 norm_dw q. */
static void rope_heads_do_not_divide(struct built *b)
{
	body_of(b, 1, PP_PHASE_F)->items[4].imm[1] = 3;
}
static void rope_heads_are_odd(struct built *b)
{
	body_of(b, 1, PP_PHASE_F)->items[4].imm[1] = 8;
}
static void rope_seq(struct built *b)
{
	body_of(b, 1, PP_PHASE_I)->items[10].imm[0] = 2;
}
static void rope_without_theta(struct built *b)
{
	body_of(b, 1, PP_PHASE_F)->items[4].imm[2] = 0;
}
static void rope_of_k_for_q(struct built *b)
{
	body_of(b, 1, PP_PHASE_F)->items[4].operand[0] = reg_index(b, 1, PP_PHASE_F, "block.0.k_plain");
}
static void rope_skips_the_norm(struct built *b)
{
	body_of(b, 1, PP_PHASE_F)->items[4].operand[0] = reg_index(b, 1, PP_PHASE_F, "block.0.q_plain");
	drop(b, 1, PP_PHASE_F, 3);
}
static void rope_in_place(struct built *b)
{
	body_of(b, 1, PP_PHASE_F)->items[4].operand[1] = reg_index(b, 1, PP_PHASE_F, "block.0.q_normed");
}
static void statistics_of_the_other_heads(struct built *b)
{
	body_of(b, 1, PP_PHASE_F)->items[3].operand[5] = reg_index(b, 1, PP_PHASE_F, "block.0.k_rstd");
}
static void norm_of_whole_rows(struct built *b)
{
	body_of(b, 1, PP_PHASE_I)->items[11].operand[4] = reg_index(b, 1, PP_PHASE_I, "block.0.rstd1");
}
static void swiglu_without_up(struct built *b)
{
	body_of(b, 1, PP_PHASE_F)->items[15].operand[1] = PP_NULL;
}
static void rope_of_partial_sums(struct built *b)
{
	reg_named(b, 1, PP_PHASE_F, "block.0.q")->type = PP_TYPE_P;
}
static void swiglu_gradients_change_places(struct built *b)
{
	struct pp_body_instr *instr = &body_of(b, 1, PP_PHASE_I)->items[2];
	instr->operand[3] = reg_index(b, 1, PP_PHASE_I, "block.0.du");
	instr->operand[4] = reg_index(b, 1, PP_PHASE_I, "block.0.df");
}
static void weight_of_the_other_norm_never_written(struct built *b)
{
	drop(b, 1, PP_PHASE_W, 5);
}

static const struct mutant mutants[] = {
    {rope_heads_do_not_divide, "error[V10]: body s1.F, instruction 4: heads = 3 does not divide columns of x = 8\n"
                               "   = note: rope block.0.q_normed -> block.0.q\n"},
    {rope_heads_are_odd, "error[V10]: body s1.F, instruction 4: a head has 1 columns, which do not fall into pairs\n"
                         "   = note: rope block.0.q_normed -> block.0.q\n"},
    {rope_seq, "error[V10]: body s1.I, instruction 10: seq = 2, but a sample has 4 tokens (`train`)\n"
               "   = note: rope_dx block.0.dq_new -> block.0.dq_normed\n"},
    {rope_without_theta, "error[V10]: body s1.F, instruction 4: theta = 0 has no powers; expected at least 1\n"
                         "   = note: rope block.0.q_normed -> block.0.q\n"},
    {rope_of_k_for_q,
     "error[V10]: body s1.F, instruction 4: operand `y` (block.0.q) is f32[4,8], expected 4 columns (from "
     "block.0.k_plain)\n"
     "   = note: rope block.0.k_plain -> block.0.q\n"},
    {rope_skips_the_norm,
     "error[V10]: body s1.F: never reads block.0.attn.q_norm.weight (weight slot 4), which its stage uses\n"},
    {rope_in_place,
     "error[V10]: body s1.F, instruction 4: output block.0.q_normed overlaps input block.0.q_normed, which `rope` "
     "does not allow\n"
     "   = note: rope block.0.q_normed -> block.0.q_normed\n"},
    {statistics_of_the_other_heads,
     "error[V10]: body s1.F, instruction 3: x has 8 columns, expected columns of rstd * rows of gamma = 2 * 2\n"
     "   = note: norm block.0.q_plain block.0.attn.q_norm.weight - -> block.0.q_normed - block.0.k_rstd\n"},
    {norm_of_whole_rows,
     "error[V10]: body s1.I, instruction 11: x has 8 columns, expected columns of rstd * rows of gamma = 1 * 2\n"
     "   = note: norm_dx block.0.dq_normed block.0.q_plain block.0.attn.q_norm.weight - block.0.rstd1 -> "
     "block.0.dq\n"},
    {swiglu_without_up, "error[V10]: body s1.F, instruction 15: operand `up` is absent; `swiglu` needs it\n"
                        "   = note: swiglu block.0.f - -> block.0.g\n"},
    {rope_of_partial_sums,
     "error[V10]: body s1.F, instruction 4: operands have the tensor-parallel types RP, expected one of: RR 11\n"
     "   = note: rope block.0.q_normed -> block.0.q\n"
     "   = note: R replicated, P partial sums, 0 and 1 split by rows and by columns, - absent\n"},
    {swiglu_gradients_change_places,
     "error[V10]: body s1.I, instruction 2: output block.0.du overlaps input block.0.u, which `swiglu_dx` does "
     "not allow\n"
     "   = note: swiglu_dx block.0.dg block.0.f block.0.u -> block.0.du block.0.df\n"},
    {weight_of_the_other_norm_never_written,
     "error[V10]: body s1.W: never writes the gradient of block.0.attn.q_norm.weight (grad slot 15)\n"},
};

static void mutants_are_rejected(void **state)
{
	(void)state;
	assert_mutants(three_llama_stages, mutants, sizeof mutants / sizeof *mutants);
}

static void a_missing_instruction_is_found(void **state)
{
	(void)state;
	assert_none_can_be_dropped(three_llama_stages, 3);
	assert_none_can_be_dropped(all_again, 3);
	assert_none_can_be_dropped(norms_again, 3);
}

static void another_order_is_refused_or_alike(void **state)
{
	(void)state;
	assert_orders_compute_alike(three_llama_stages);
	assert_orders_compute_alike(all_again);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(mutants_are_rejected),
	    cmocka_unit_test(a_missing_instruction_is_found),
	    cmocka_unit_test(another_order_is_refused_or_alike),
	};
	return cmocka_run_group_tests_name("bodies of Llama's kind", tests, NULL, NULL);
}
