/* Putting into words where ranks are and who is to blame. */
#include "report.h"

#include "ir/program_text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *name_of(const struct pp_scene *scene, uint32_t rank, char name[PP_GRID_NAME])
{
	return pp_grid_name(scene->program, rank, name);
}

/* "recv grad s3 m5", "fwd s3 m6"; other instructions as they stand in the program. */
static void print_instr(const struct pp_scene *scene, uint32_t rank, const struct pp_instr *instr, FILE *out)
{
	const struct pp_program *program = scene->program;
	const char *mnemonic = pp_op_table[instr->op].mnemonic;
	switch ((enum pp_op)instr->op) {
	case PP_OP_SEND:
	case PP_OP_RECV:
		fprintf(out, "%s %s s%" PRIu32 " m%" PRIu32, mnemonic, pp_value_name[program->channels[instr->a[0]].kind],
		        instr->stage, instr->mb);
		return;
	case PP_OP_FWD:
	case PP_OP_BWD:
	case PP_OP_BWDI:
	case PP_OP_BWDW:
	case PP_OP_REMAT:
		fprintf(out, "%s s%" PRIu32 " m%" PRIu32, mnemonic, instr->stage, instr->mb);
		return;
	case PP_OP_COLL:
		fprintf(out, "%s k%" PRIu32, pp_collective_name[instr->sub], instr->a[0]);
		return;
	case PP_OP_LOAD:
	case PP_OP_WAIT:
	case PP_OP_WAITC:
	case PP_OP_ZERO:
	case PP_OP_ADD:
	case PP_OP_SQNORM:
	case PP_OP_CLIP:
	case PP_OP_OPT:
	case PP_OP_MARK:
	case PP_OP_COUNT:
		pp_instr_print(program, pp_grid_coord(program, rank).pp, instr, out);
		return;
	}
}

static uint32_t count_of(const struct pp_scene *scene, uint32_t rank)
{
	uint32_t program = scene->accounts[rank].place.program;
	return scene->program->programs[program].streams[pp_grid_coord(scene->program, rank).pp].count;
}

static void print_step(const struct pp_seen *place, FILE *out)
{
	if (place->batch)
		fprintf(out, "batch %" PRIu64 " of the evaluation after ", place->batch);
	fprintf(out, "step %" PRIu64, place->step);
}

/* What a rank is at, a wait as what it is for. */
static void print_present(const struct pp_scene *scene, uint32_t rank, FILE *out)
{
	const struct pp_instr *post = pp_scene_post(scene, rank);
	if (post)
		fputs("wait for ", out);
	print_instr(scene, rank, post ? post : pp_scene_instr(scene, rank), out);
}

/* "step 4, instruction 17 of 60". */
static void print_at(const struct pp_scene *scene, uint32_t rank, FILE *out)
{
	const struct pp_seen *place = &scene->accounts[rank].place;
	print_step(place, out);
	fprintf(out, ", instruction %" PRIu32 " of %" PRIu32, place->index, count_of(scene, rank));
}

/* Where a rank was last, for sentences about it. */
static void print_last(const struct pp_scene *scene, uint32_t rank, FILE *out)
{
	const struct pp_account *account = &scene->accounts[rank];
	const struct pp_instr *instr = pp_scene_instr(scene, rank);
	if (!account->placed)
		fputs("nothing is known of where it was", out);
	else if (account->place.doing[0])
		fprintf(out, "last seen: %s", account->place.doing);
	else if (!instr) {
		fputs("last seen: at the end of ", out);
		print_step(&account->place, out);
	} else {
		fputs("last instruction: ", out);
		print_present(scene, rank, out);
		fputs(" (", out);
		print_at(scene, rank, out);
		fputc(')', out);
	}
}

static void print_time(uint64_t waited, FILE *out)
{
	if (waited)
		fprintf(out, " for %.1f s", (double)waited * 1e-9);
}

static void print_wait(const struct pp_scene *scene, uint32_t rank, const struct pp_wait *wait, FILE *out)
{
	const struct pp_seen *place = &scene->accounts[rank].place;
	char name[PP_GRID_NAME];
	if (wait->kind == PP_WAITS_ALL) {
		fprintf(out, "waits: %s", place->doing);
		print_time(place->waited, out);
	} else {
		bool in_body = wait->kind == PP_WAITS_COLLECTIVE && wait->instr->op != PP_OP_COLL;
		fputs(in_body ? "waits: a collective of its tp group in " : "waits: ", out);
		print_instr(scene, rank, wait->instr, out);
		if (wait->kind == PP_WAITS_MESSAGE && wait->peer != rank)
			fprintf(out, " %s %s", wait->instr->op == PP_OP_RECV ? "from" : "to", name_of(scene, wait->peer, name));
		print_time(place->waited, out);
		fputs(" (", out);
		print_at(scene, rank, out);
		fputc(')', out);
	}
	if (wait->unposted != PP_NULL && wait->peer == rank)
		fputs("; it was never posted", out);
	else if (wait->peer == PP_NULL || (!wait->missing && wait->kind != PP_WAITS_MESSAGE))
		fputs("; all others have come", out);
	else if (scene->accounts[wait->peer].placed) {
		fprintf(out, "; %s's ", name_of(scene, wait->peer, name));
		print_last(scene, wait->peer, out);
	}
}

void pp_report_rank(const struct pp_scene *scene, uint32_t rank, FILE *out)
{
	const struct pp_account *account = &scene->accounts[rank];
	struct pp_wait wait = pp_scene_wait(scene, rank);
	const struct pp_instr *instr = pp_scene_instr(scene, rank);
	char name[PP_GRID_NAME];
	fprintf(out, "%s ", name_of(scene, rank, name));
	if (wait.kind != PP_WAITS_NOT) {
		print_wait(scene, rank, &wait, out);
	} else if (!account->placed) {
		fputs("has not been heard of", out);
	} else if (account->place.doing[0]) {
		fprintf(out, "is %s", account->place.doing);
	} else if (instr) {
		fputs("runs: ", out);
		print_present(scene, rank, out);
		fputs(" (", out);
		print_at(scene, rank, out);
		fputc(')', out);
	} else {
		fputs("is at the end of ", out);
		print_step(&account->place, out);
	}
}

/* ---- the culprit ----------------------------------------------------------------------------- */

static void print_host(const struct pp_account *account, FILE *out)
{
	if (account->host[0])
		fprintf(out, " on %s", account->host);
}

static bool same_host(const struct pp_account *a, const struct pp_account *b)
{
	return strcmp(a->host, b->host) == 0;
}

/* All ranks of the culprit's machine are silent, and there are others: it is the machine or the way to it. */
static bool host_is_silent(const struct pp_scene *scene, uint32_t culprit)
{
	bool others = false;
	for (uint32_t rank = 0; rank < scene->world; rank++) {
		const struct pp_account *account = &scene->accounts[rank];
		bool here = same_host(account, &scene->accounts[culprit]);
		if (here && account->standing != PP_SILENT)
			return false;
		others = others || !here;
	}
	return others;
}

static void print_standing(const struct pp_scene *scene, uint32_t rank, FILE *out)
{
	const struct pp_account *account = &scene->accounts[rank];
	char name[PP_GRID_NAME];
	double silent = (double)account->silent * 1e-9;
	name_of(scene, rank, name);
	fputs(name, out);
	print_host(account, out);
	switch (account->standing) {
	case PP_PRESENT:
	case PP_ENDED:
		break;
	case PP_GAVE_UP:
		fprintf(out, " failed: %s", account->why);
		break;
	case PP_SIGNALLED:
		fprintf(out, " was %s", account->why);
		return;
	case PP_LOST:
		fputs(" is gone: its process was killed, crashed or left without a word", out);
		break;
	case PP_STOPPED:
		fprintf(out, " is paused: its process is stopped (SIGSTOP, a debugger), no heartbeat for %.1f s", silent);
		break;
	case PP_SILENT:
		if (host_is_silent(scene, rank))
			fprintf(out, " does not answer, nor does any other rank there, for %.1f s: the machine or its link is down",
			        silent);
		else
			fprintf(out, " does not answer: no heartbeat for %.1f s, so its process is paused or cannot be reached",
			        silent);
		break;
	}
	fputs("; ", out);
	print_last(scene, rank, out);
	uint32_t others = 0;
	for (uint32_t i = 0; i < scene->world; i++)
		others += i != rank && scene->accounts[i].standing == account->standing;
	if (others && account->standing != PP_GAVE_UP && account->standing != PP_SIGNALLED)
		fprintf(out, "; the same holds for %" PRIu32 " other%s", others, others > 1 ? "s" : "");
}

static void print_verdict(const struct pp_scene *scene, const struct pp_verdict *verdict, FILE *out)
{
	char name[PP_GRID_NAME], other[PP_GRID_NAME];
	const struct pp_account *account = &scene->accounts[verdict->rank];
	const struct pp_instr *instr = pp_scene_instr(scene, verdict->rank);
	name_of(scene, verdict->rank, name);
	switch (verdict->blame) {
	case PP_BLAME_NONE:
		fputs("no rank stands out", out);
		return;
	case PP_BLAME_STANDING:
		print_standing(scene, verdict->rank, out);
		return;
	case PP_BLAME_LATE:
		fputs(name, out);
		print_host(account, out);
		fputs(instr ? " is waited for and does not get on with its work; " : " is waited for; ", out);
		print_last(scene, verdict->rank, out);
		return;
	case PP_BLAME_UNPOSTED:
		fputs(name, out);
		print_host(account, out);
		fprintf(out, " never posted its instruction %" PRIu32 ", ", verdict->index);
		print_instr(scene, verdict->rank,
		            &scene->program->programs[account->place.program]
		                 .streams[pp_grid_coord(scene->program, verdict->rank).pp]
		                 .items[verdict->index],
		            out);
		fputs("; ", out);
		print_last(scene, verdict->rank, out);
		return;
	case PP_BLAME_LINK:
		fprintf(out, "what %s and %s have both posted does not move: look at the link between them", name,
		        verdict->other == PP_NULL ? "the others" : name_of(scene, verdict->other, other));
		return;
	case PP_BLAME_CYCLE:
		fprintf(out, "%s and others wait for each other in a circle: messages were lost", name);
		return;
	}
}

/* ---- all of it ------------------------------------------------------------------------------- */

static bool is_said(const struct pp_scene *scene, uint32_t rank)
{
	const struct pp_account *account = &scene->accounts[rank];
	return account->placed && (account->standing == PP_PRESENT || account->standing == PP_SIGNALLED);
}

void pp_report_print(const struct pp_scene *scene, const char *occasion, FILE *out)
{
	char *text = NULL;
	size_t length = 0;
	FILE *report = open_memstream(&text, &length);
	if (!report)
		return;
	struct pp_verdict verdict;
	if (!pp_scene_judge(scene, &verdict))
		verdict.blame = PP_BLAME_NONE;
	uint32_t lines = 0, more = 0;
	for (uint32_t rank = 0; rank < scene->world; rank++) {
		if (!is_said(scene, rank))
			continue;
		if (lines == PP_REPORT_LINES) {
			more++;
			continue;
		}
		fputs("piperun: ", report);
		pp_report_rank(scene, rank, report);
		fputc('\n', report);
		lines++;
	}
	if (more)
		fprintf(report, "piperun: and %" PRIu32 " more ranks\n", more);
	bool asked = verdict.blame == PP_BLAME_STANDING && scene->accounts[verdict.rank].standing == PP_SIGNALLED;
	fputs(asked ? "piperun: " : "error[E0904]: ", report);
	print_verdict(scene, &verdict, report);
	if (occasion && occasion[0])
		fprintf(report, " (%s)", occasion);
	fputc('\n', report);
	fclose(report);
	fwrite(text, 1, length, out);
	fflush(out);
	free(text);
}

void pp_report_publish(const struct pp_scene *scene, const char *occasion, const char *path)
{
	FILE *file = path ? fopen(path, "a") : NULL;
	if (file) {
		pp_report_print(scene, occasion, file);
		fclose(file);
	}
	pp_report_print(scene, occasion, stderr);
	if (path && !file)
		fprintf(stderr, "piperun: cannot write the report to %s\n", path);
}
