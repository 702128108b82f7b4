/* V10: every body that the builder makes passes; mutated ones are rejected, with the whole message. */
#include "body_mutants.h"

static const struct model_size tiny = {8, 2, 2, 1, 32, 16, 4, 1, false};

/* ---- programs that pass ---------------------------------------------------------------------- */

static void assert_proven(const struct model_size *size, const uint32_t *first, uint32_t count, uint32_t ranks)
{
	static const uint8_t phases[] = {FUSED, SPLIT, MIXED};
	for (unsigned i = 0; i < 3; i++) {
		for (unsigned variant = 0; variant < 7; variant++) {
			struct built built = built_of(size);
			for (uint32_t l = 0; l < built.spec->model.layer_count; l++) {
				struct pp_layer *layer = &built.spec->model.layers[l];
				layer->bias = variant != 1 && variant != 4;
				layer->qkv_bias = variant == 4;
				layer->rms = variant == 2;
				layer->window = variant == 2 ? 3 : 0;
				layer->act = variant >= 4 ? PP_ACT_SWIGLU : PP_ACT_GELU_TANH;
				layer->qk_norm = variant >= 5;
				layer->rope_theta = variant == 4 || variant == 6 ? 10000 : 0;
			}
			built.spec->dtype = variant == 3 ? PP_BF16 : PP_F32;
			build_bodies(&built, first, count, ranks, phases[i]);
			assert_messages(built.program, "");
			pp_arena_destroy(built.arena);
		}
	}
}

static void built_bodies_are_proven(void **state)
{
	(void)state;
	static const struct model_size grouped = {32, 8, 2, 3, 40, 24, 6, 3, true},
	                               odd = {6, 3, 1, 3, 5, 7, 3, 1, true}; /* heads of 4 and 2 columns */
	static const uint32_t whole[] = {0}, two[] = {0, 2}, ends[] = {0, 1, 4, 5}, gaps[] = {0, 0, 1, 1, 5, 6};
	const struct model_size *sizes[] = {&grouped, &odd};
	for (unsigned i = 0; i < 2; i++) {
		assert_proven(sizes[i], whole, 1, 1);
		assert_proven(sizes[i], two, 2, 2);
		assert_proven(sizes[i], ends, 4, 4); /* embedding, blocks, norm, head alone */
		assert_proven(sizes[i], ends, 4, 2); /* tied uses in two stages of a rank */
		assert_proven(sizes[i], gaps, 6, 3); /* an empty first stage, one amidst */
	}
	assert_proven(&gpt2_small, whole, 1, 1);
	assert_proven(&demo_model, ends, 4, 4);
}

/* ---- mutants --------------------------------------------------------------------------------- */

/* Stages: emb | block | norm head, on three ranks, all phases. */
static struct built three_stages_again(uint8_t recompute)
{
	static const uint32_t first[] = {0, 1, 2};
	struct built built = built_of(&tiny);
	recompute_blocks(&built, recompute);
	build_bodies(&built, first, 3, 3, MIXED);
	return built;
}
static struct built three_stages(void)
{
	return three_stages_again(0);
}
static struct built all_again(void)
{
	return three_stages_again(PP_RECOMPUTE_FULL);
}
static struct built cheap_again(void)
{
	return three_stages_again(PP_RECOMPUTE_NORM | PP_RECOMPUTE_ACT);
}
static struct built attention_again(void)
{
	return three_stages_again(PP_RECOMPUTE_ATTENTION);
}

static void stash_offset_leaves_the_slot(struct built *b)
{
	reg_named(b, 1, PP_PHASE_F, "block.0.g")->offset += 16ull * 1024;
}
static void work_is_too_small(struct built *b)
{
	b->program->bodies[b->program->stages[1].body[PP_PHASE_B]].work_bytes = 512;
	reg_named(b, 1, PP_PHASE_B, "block.0.df")->offset = 128;
}
static void workspace_slot_is_too_small(struct built *b)
{
	struct pp_rank *rank = &b->program->rank[1];
	rank->slots[rank->slot_count - 1].bytes = 512;
}
static void offset_is_not_aligned(struct built *b)
{
	reg_named(b, 2, PP_PHASE_F, "norm.x")->offset += 4;
}
static void register_is_empty(struct built *b)
{
	reg_named(b, 2, PP_PHASE_F, "norm.mean")->columns = 0;
}
static void boundary_is_too_wide(struct built *b)
{
	reg_named(b, 0, PP_PHASE_F, "out")->columns = 9;
}
static void boundary_dtype(struct built *b)
{
	reg_named(b, 0, PP_PHASE_F, "out")->dtype = PP_BF16;
}
static void first_stage_has_no_input(struct built *b)
{
	reg_named(b, 0, PP_PHASE_F, "out")->base = PP_BASE_IN;
}
static void grad_of_the_wrong_shape(struct built *b)
{
	reg_named(b, 1, PP_PHASE_W, "block.0.attn.q.weight.grad")->columns = 4;
}
static void weight_is_a_grad_slot(struct built *b)
{
	reg_named(b, 2, PP_PHASE_F, "norm.weight")->slot = reg_named(b, 2, PP_PHASE_B, "norm.weight.grad")->slot;
}
static void weight_of_no_slot(struct built *b)
{
	reg_named(b, 2, PP_PHASE_F, "norm.weight")->slot = 999;
}
static void weight_of_another_tensor(struct built *b)
{
	reg_named(b, 1, PP_PHASE_F, "block.0.attn.q.weight")->slot =
	    reg_named(b, 1, PP_PHASE_F, "block.0.mlp.fc1.weight")->slot;
}
static void weight_of_another_stage(struct built *b)
{
	b->program->uses[0].stage = 1;
	b->program->uses[0].weight = b->program->uses[0].grad = PP_NULL;
}
static void weight_of_another_dtype(struct built *b)
{
	reg_named(b, 2, PP_PHASE_F, "head.weight")->dtype = PP_BF16;
}
static void weight_is_sharded(struct built *b)
{
	struct pp_reg *reg = reg_named(b, 2, PP_PHASE_F, "head.weight");
	reg->type = PP_TYPE_S;
	reg->shard = 1;
}
static void operand_is_absent(struct built *b)
{
	body_of(b, 1, PP_PHASE_F)->items[2].operand[1] = PP_NULL;
}
static void operand_on_the_wrong_base(struct built *b)
{
	body_of(b, 1, PP_PHASE_F)->items[2].operand[1] = reg_index(b, 1, PP_PHASE_F, "block.0.n1");
}
static void operand_of_the_wrong_dtype(struct built *b)
{
	reg_named(b, 2, PP_PHASE_F, "norm.mean")->dtype = PP_BF16;
}
static void operand_of_the_wrong_shape(struct built *b)
{
	body_of(b, 1, PP_PHASE_F)->items[9].operand[0] = reg_index(b, 1, PP_PHASE_F, "block.0.g");
}
static void seq_does_not_divide(struct built *b)
{
	body_of(b, 1, PP_PHASE_F)->items[5].imm[0] = 3;
}
static void heads_do_not_fit(struct built *b)
{
	body_of(b, 1, PP_PHASE_F)->items[5].imm[2] = 1;
}
static void activation_of_no_kind(struct built *b)
{
	body_of(b, 1, PP_PHASE_F)->items[10].imm[0] = 2;
}
static void rms_with_a_mean(struct built *b)
{
	body_of(b, 2, PP_PHASE_F)->items[1].imm[0] = 1;
}
static void vocab_beyond_the_columns(struct built *b)
{
	body_of(b, 2, PP_PHASE_F)->items[3].imm[0] = 17;
}
static void labels_of_a_stage_without(struct built *b)
{
	b->program->stages[2].loads_labels = false;
}
static void ids_where_labels_are(struct built *b)
{
	b->program->stages[2].loads_tokens = true;
	b->program->stages[2].aux_bytes = 32;
}
static void partial_into_an_activation(struct built *b)
{
	reg_named(b, 1, PP_PHASE_F, "block.0.f")->type = PP_TYPE_P;
}
static void read_before_write(struct built *b)
{
	drop(b, 1, PP_PHASE_F, 0);
}
static void read_of_a_stale_value(struct built *b)
{
	body_of(b, 1, PP_PHASE_I)->items[2].operand[0] = reg_index(b, 1, PP_PHASE_I, "block.0.df");
	body_of(b, 1, PP_PHASE_I)->items[1].operand[2] = reg_index(b, 1, PP_PHASE_I, "block.0.df");
}
static void value_of_another_shape(struct built *b)
{
	struct pp_reg *reg = reg_named(b, 1, PP_PHASE_W, "block.0.g");
	struct pp_reg *other = reg_named(b, 1, PP_PHASE_W, "block.0.df");
	reg->offset = other->offset = reg_named(b, 1, PP_PHASE_W, "block.0.x")->offset;
}
static void split_part_nobody_left(struct built *b)
{
	body_of(b, 1, PP_PHASE_I)->items[0] = (struct pp_body_instr){.op = PP_BODY_SLEEP, .imm = {1}};
	body_of(b, 1, PP_PHASE_I)->items[1].operand[0] = reg_index(b, 1, PP_PHASE_I, "dout");
	body_of(b, 1, PP_PHASE_I)->items[5].operand[0] = reg_index(b, 1, PP_PHASE_I, "dout");
}
static void name_of_two_values(struct built *b)
{
	body_of(b, 1, PP_PHASE_I)->items[0].operand[1] = reg_index(b, 1, PP_PHASE_I, "block.0.dn2");
	body_of(b, 1, PP_PHASE_I)->items[1].operand[0] = reg_index(b, 1, PP_PHASE_I, "block.0.dn2");
	body_of(b, 1, PP_PHASE_I)->items[5].operand[0] = reg_index(b, 1, PP_PHASE_I, "block.0.dn2");
}
static void output_overlaps_input(struct built *b)
{
	body_of(b, 1, PP_PHASE_F)->items[1].operand[3] = reg_index(b, 1, PP_PHASE_F, "block.0.x");
}
static void outputs_overlap(struct built *b)
{
	reg_named(b, 2, PP_PHASE_F, "norm.rstd")->offset = reg_named(b, 2, PP_PHASE_F, "norm.mean")->offset;
}
static void input_gradient_writes_weights(struct built *b)
{
	b->program->bodies[b->program->stages[0].body[PP_PHASE_W]].phase = PP_PHASE_I;
}
static void write_into_what_is_given(struct built *b)
{
	body_of(b, 1, PP_PHASE_I)->items[5].operand[2] = reg_index(b, 1, PP_PHASE_I, "dout");
	body_of(b, 1, PP_PHASE_I)->items[5].operand[0] = reg_index(b, 1, PP_PHASE_I, "dout");
}
static void gradient_written_twice(struct built *b)
{
	const struct pp_body *body = body_of(b, 1, PP_PHASE_W);
	body->items[5] = body->items[4];
}
static void gradient_never_written(struct built *b)
{
	drop(b, 2, PP_PHASE_B, 1);
}
static void output_left_unwritten(struct built *b)
{
	drop(b, 1, PP_PHASE_F, 12);
	drop(b, 1, PP_PHASE_F, 11);
}

static const struct mutant mutants[] = {
    {stash_offset_leaves_the_slot,
     "error[V10]: body s1.F: register block.0.g (f32[4,32] at byte 18240) ends outside stash, which has 2368 bytes\n"},
    {work_is_too_small,
     "error[V10]: body s1.B: register block.0.df (f32[4,32] at byte 128) ends outside work, which has 512 bytes\n"
     "error[V10]: body s1.B: register block.0.dn2 (f32[4,8] at byte 512) ends outside work, which has 512 bytes\n"
     "error[V10]: body s1.B: register block.0.dv (f32[4,8] at byte 512) ends outside work, which has 512 bytes\n"},
    {workspace_slot_is_too_small, "error[V10]: body s1.B: needs 640 bytes of workspace; rank 1 has 512\n"},
    {offset_is_not_aligned, "error[V10]: body s2.F: register norm.x begins at byte 4, expected a multiple of 16\n"},
    {register_is_empty, "error[V10]: body s2.F: register norm.mean is empty: [4,0]\n"},
    {boundary_is_too_wide,
     "error[V10]: body s0.F: register out (f32[4,9] at byte 0) ends outside out, which has 128 bytes\n"},
    {boundary_dtype, "error[V10]: body s0.F: register out on out is bf16, expected f32 as the boundary of the stage\n"},
    {first_stage_has_no_input,
     "error[V10]: body s0.F: register out (f32[4,8] at byte 0) ends outside in, which has 0 bytes\n"},
    {grad_of_the_wrong_shape, "error[V10]: body s1.W: register block.0.attn.q.weight.grad is f32[8,4] at byte 0, "
                              "expected [8,8] at byte 0 as tensor block.0.attn.q.weight\n"},
    {weight_is_a_grad_slot,
     "error[V10]: body s2.F: register norm.weight names slot 3 of class grad, expected weight\n"},
    {weight_of_no_slot, "error[V10]: body s2.F: register norm.weight names slot 999, but the rank has 16\n"},
    {weight_of_another_tensor, "error[V10]: body s1.F: register block.0.attn.q.weight is f32[8,8] at byte 0, expected "
                               "[32,8] at byte 0 as tensor block.0.mlp.fc1.weight\n"},
    {weight_of_another_stage,
     "error[V10]: body s0.F: register emb.weight names weight slot 0, which no use of stage 0 has\n"
     "error[V10]: body s1.F: never reads emb.weight (weight slot 4294967295), which its stage uses\n"},
    {weight_of_another_dtype,
     "error[V10]: body s2.F: register head.weight is bf16, expected f32 as tensor head.weight\n"},
    {weight_is_sharded, "error[V10]: body s2.F: register head.weight has tensor-parallel type S(1), which tensor "
                        "head.weight (sharded) does not\n"},
    {operand_is_absent, "error[V10]: body s1.F, instruction 2: operand `w` is absent; `linear` needs it\n"
                        "   = note: linear block.0.n1 - block.0.attn.q.bias -> block.0.q\n"},
    {operand_on_the_wrong_base,
     "error[V10]: body s1.F, instruction 2: operand `w` (block.0.n1) lies on stash, expected a weight slot\n"
     "   = note: linear block.0.n1 block.0.n1 block.0.attn.q.bias -> block.0.q\n"},
    {operand_of_the_wrong_dtype,
     "error[V10]: body s2.F, instruction 1: operand `mean` (norm.mean) is bf16, expected f32\n"
     "   = note: norm norm.x norm.weight norm.bias -> head.x norm.mean norm.rstd\n"},
    {operand_of_the_wrong_shape,
     "error[V10]: body s1.F, instruction 9: operand `w` (block.0.mlp.fc1.weight) is f32[32,8], expected 32 columns "
     "(from block.0.g)\n"
     "   = note: linear block.0.g block.0.mlp.fc1.weight block.0.mlp.fc1.bias -> block.0.f\n"},
    {seq_does_not_divide, "error[V10]: body s1.F, instruction 5: seq = 3 does not divide tokens = 4\n"
                          "   = note: attn block.0.q block.0.k block.0.v -> block.0.o block.0.lse\n"},
    {heads_do_not_fit,
     "error[V10]: body s1.F, instruction 5: k and v have 8 columns, expected kv_heads * head_dim = 1 * 4\n"
     "   = note: attn block.0.q block.0.k block.0.v -> block.0.o block.0.lse\n"},
    {activation_of_no_kind, "error[V10]: body s1.F, instruction 10: kind = 2 is out of range 0..1\n"
                            "   = note: act block.0.f -> block.0.g\n"},
    {rms_with_a_mean, "error[V10]: body s2.F, instruction 1: rms = 1 keeps no mean, but one is given\n"
                      "   = note: norm norm.x norm.weight norm.bias -> head.x norm.mean norm.rstd\n"},
    {vocab_beyond_the_columns,
     "error[V10]: body s2.F, instruction 3: vocab = 17 is out of range 1..16 (columns of the logits)\n"
     "   = note: xent head.logits.1 labels -> head.logits loss\n"},
    {labels_of_a_stage_without, "error[V10]: body s2.F, instruction 3: reads labels, but stage 2 does not load them\n"
                                "   = note: xent head.logits.1 labels -> head.logits loss\n"},
    {ids_where_labels_are, "error[V10]: body s2.F, instruction 3: labels (labels) begin at byte 0 of aux, expected 16\n"
                           "   = note: xent head.logits.1 labels -> head.logits loss\n"},
    {partial_into_an_activation,
     "error[V10]: body s1.F, instruction 9: operands have the tensor-parallel types RRRP, expected one of: RRRR R001 "
     "11-P 0RR0 PR-P\n"
     "   = note: linear block.0.n2 block.0.mlp.fc1.weight block.0.mlp.fc1.bias -> block.0.f\n"
     "   = note: R replicated, P partial sums, 0 and 1 split by rows and by columns, - absent\n"},
    {read_before_write,
     "error[V10]: body s1.F, instruction 0: reads block.0.x (f32[4,8] at byte 0 of stash), which nobody has written\n"
     "   = note: norm block.0.x block.0.norm1.weight block.0.norm1.bias -> block.0.n1 block.0.mean1 block.0.rstd1\n"},
    {read_of_a_stale_value, "error[V10]: body s1.I, instruction 2: reads block.0.f (f32[4,32] at byte 1344 of stash), "
                            "but those bytes hold block.0.df (f32[4,32])\n"
                            "   = note: act_dx block.0.df block.0.f -> block.0.df\n"},
    {value_of_another_shape,
     "error[V10]: body s1.W, instruction 0: reads block.0.g (f32[4,32] at byte 0 of stash), but those bytes hold "
     "block.0.x (f32[4,8])\n"
     "   = note: linear_dw block.0.dy block.0.g -> block.0.mlp.fc2.weight.grad block.0.mlp.fc2.bias.grad\n"},
    {split_part_nobody_left,
     "error[V10]: body s1.W, instruction 0: reads block.0.dy (f32[4,8] at byte 0 of extra), which nobody has "
     "written\n"
     "   = note: linear_dw block.0.dy block.0.g -> block.0.mlp.fc2.weight.grad block.0.mlp.fc2.bias.grad\n"},
    {name_of_two_values,
     "error[V10]: body s1.I, instruction 3: writes block.0.dn2 a second time: instruction 0 has made it\n"
     "   = note: linear_dx block.0.df block.0.mlp.fc1.weight -> block.0.dn2\n"
     "   = help: name each version of a value that is worked on in place, on the same bytes\n"},
    {output_overlaps_input,
     "error[V10]: body s1.F, instruction 1: output block.0.x overlaps input block.0.x, which `norm` does not allow\n"
     "   = note: norm block.0.x block.0.norm1.weight block.0.norm1.bias -> block.0.x block.0.mean1 block.0.rstd1\n"},
    {outputs_overlap,
     "error[V10]: body s2.F, instruction 1: output norm.rstd overlaps output norm.mean, which `norm` does not allow\n"
     "   = note: norm norm.x norm.weight norm.bias -> head.x norm.mean norm.rstd\n"},
    {input_gradient_writes_weights,
     "error[V10]: body s0.I, instruction 0: writes emb.weight.grad, but a body of phase I may not write grad\n"
     "   = note: embed_dw ids emb.dy -> emb.weight.grad emb.position.grad\n"},
    {write_into_what_is_given,
     "error[V10]: body s1.I, instruction 5: writes dout, but a body of phase I may not write dout\n"
     "   = note: add dout block.0.dx2.1 -> dout\n"},
    {gradient_written_twice,
     "error[V10]: body s1.W, instruction 5: writes the gradient block.0.attn.q.weight.grad a second time\n"
     "   = note: linear_dw block.0.dq block.0.n1 -> block.0.attn.q.weight.grad block.0.attn.q.bias.grad\n"},
    {gradient_never_written, "error[V10]: body s2.B: never writes the gradient of head.weight (grad slot 5)\n"},
    {output_left_unwritten, "error[V10]: body s1.F: leaves 0 of 128 bytes of out written\n"},
};

/* R of a block that recomputes all: 0 norm, 1..3 linears, 4 attn, 5 linear, 6 add, 7 norm, 8 linear, 9 act. */
static void recompute_writes_the_input(struct built *b)
{
	body_of(b, 1, PP_PHASE_R)->items[1].operand[3] = reg_index(b, 1, PP_PHASE_R, "block.0.x");
}
static void recompute_reads_ids(struct built *b)
{
	reg_named(b, 1, PP_PHASE_R, "block.0.x")->base = PP_BASE_AUX;
}
static void recompute_has_less_room(struct built *b)
{
	b->program->stages[1].extra_bytes -= 64;
}
static void forward_writes_extra(struct built *b)
{
	struct pp_reg *reg = reg_named(b, 1, PP_PHASE_F, "block.0.x2");
	reg->base = PP_BASE_EXTRA;
	reg->offset = 0;
}
static void backward_reads_before_recompute(struct built *b)
{
	b->program->stages[1].body[PP_PHASE_R] = PP_NULL;
}

static const struct mutant recompute_mutants[] = {
    {recompute_writes_the_input,
     "error[V10]: body s1.R, instruction 1: writes block.0.x, but a body of phase R may not write stash\n"
     "   = note: linear block.0.n1 block.0.attn.q.weight block.0.attn.q.bias -> block.0.x\n"},
    {recompute_reads_ids,
     "error[V10]: body s1.R: register block.0.x (f32[4,8] at byte 0) ends outside aux, which has 0 bytes\n"},
    {recompute_has_less_room,
     "error[V10]: body s1.I: register block.0.dn1 (f32[4,8] at byte 2624) ends outside extra, which has 2688 bytes\n"
     "error[V10]: body s1.I: register block.0.dn1.1 (f32[4,8] at byte 2624) ends outside extra, which has 2688 bytes\n"
     "error[V10]: body s1.I: register block.0.dn1.2 (f32[4,8] at byte 2624) ends outside extra, which has 2688 "
     "bytes\n"},
    {forward_writes_extra,
     "error[V10]: body s1.F, instruction 7: writes block.0.x2, but a body of phase F may not write extra\n"
     "   = note: add block.0.x block.0.x2.1 -> block.0.x2\n"},
    {backward_reads_before_recompute,
     "error[V10]: body s1.B, instruction 1: reads block.0.g (f32[4,32] at byte 1728 of extra), which nobody has "
     "written\n"
     "   = note: linear_dw dout block.0.g -> block.0.mlp.fc2.weight.grad block.0.mlp.fc2.bias.grad\n"
     "error[V10]: body s1.I, instruction 2: reads block.0.f (f32[4,32] at byte 1216 of extra), which nobody has "
     "written\n"
     "   = note: act_dx block.0.dg block.0.f -> block.0.df\n"},
};

static void mutants_are_rejected(void **state)
{
	(void)state;
	assert_mutants(three_stages, mutants, sizeof mutants / sizeof *mutants);
	assert_mutants(all_again, recompute_mutants, sizeof recompute_mutants / sizeof *recompute_mutants);
}

static void a_missing_instruction_is_found(void **state)
{
	(void)state;
	assert_none_can_be_dropped(three_stages, 3);
	assert_none_can_be_dropped(all_again, 3);
	assert_none_can_be_dropped(cheap_again, 3);
	assert_none_can_be_dropped(attention_again, 3);
}

static void another_order_is_refused_or_alike(void **state)
{
	(void)state;
	assert_orders_compute_alike(three_stages);
	assert_orders_compute_alike(all_again);
	assert_orders_compute_alike(cheap_again);
	assert_orders_compute_alike(attention_again);
}

/* A register of another shape, dtype, name or place than the builder gave it is found wherever the bytes matter. */
static void an_altered_register_is_found(void **state)
{
	(void)state;
	for (uint32_t stage = 0; stage < 3; stage++) {
		for (unsigned phase = 0; phase < PP_PHASE_R; phase++) {
			struct built built = three_stages();
			uint32_t count = body_of(&built, stage, (enum pp_phase)phase)->reg_count;
			pp_arena_destroy(built.arena);
			for (uint32_t at = 0; at < 4 * count; at++) {
				built = three_stages();
				struct pp_reg *reg = &body_of(&built, stage, (enum pp_phase)phase)->regs[at / 4];
				if (at % 4 == 0)
					reg->rows++;
				else if (at % 4 == 1)
					reg->columns++;
				else if (at % 4 == 2)
					reg->dtype = PP_I32 - reg->dtype;
				else
					reg->base = reg->base == PP_BASE_AUX ? PP_BASE_WORK : PP_BASE_AUX;
				char *text = messages_of(built.program);
				assert_true(text[0] != '\0');
				free(text);
				pp_arena_destroy(built.arena);
			}
		}
	}
}

/* Values far apart: in a stage of 400 blocks, F writes part of block 390 over a part of block 7 that backward reads. */
static void a_far_overwrite_is_found(void **state)
{
	(void)state;
	static const struct model_size deep = {8, 2, 2, 400, 32, 16, 4, 1, false};
	static const uint32_t whole[] = {0};
	struct built built = built_of(&deep);
	build_bodies(&built, whole, 1, 1, FUSED);
	assert_messages(built.program, "");
	struct pp_reg *g = reg_named(&built, 0, PP_PHASE_F, "block.390.g");
	uint64_t own = g->offset;
	g->offset = reg_named(&built, 0, PP_PHASE_F, "block.7.n1")->offset;
	reg_named(&built, 0, PP_PHASE_B, "block.390.g")->offset = g->offset;
	assert_messages(
	    built.program,
	    "error[V10]: body s0.B, instruction 8638: reads block.7.q (f32[4,8] at byte 16960 of stash), which nobody has "
	    "written\n"
	    "   = note: attn_dx block.7.do block.7.q block.7.k block.7.v block.7.o block.7.lse -> block.7.dq block.7.dk "
	    "block.7.dv\n");
	g->offset = reg_named(&built, 0, PP_PHASE_B, "block.390.g")->offset = own;
	assert_messages(built.program, "");
	pp_arena_destroy(built.arena);
}

static void an_empty_program_passes(void **state)
{
	(void)state;
	struct pp_program program = {.arena = pp_arena_create(NULL)};
	assert_messages(&program, "");
	pp_arena_destroy(program.arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(built_bodies_are_proven),        cmocka_unit_test(mutants_are_rejected),
	    cmocka_unit_test(a_missing_instruction_is_found), cmocka_unit_test(another_order_is_refused_or_alike),
	    cmocka_unit_test(an_altered_register_is_found),   cmocka_unit_test(a_far_overwrite_is_found),
	    cmocka_unit_test(an_empty_program_passes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
