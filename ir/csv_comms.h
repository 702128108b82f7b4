/* Schedule files with messages (csv.h): are the messages complete, and does the step end under a layout of queues?
 *
 * A rank works through its row. SEND and RECV are posts; a RECV is waited for before the first action that uses it, all
 * SENDs at the end of the step. A transfer starts when both posts head their queues (rendezvous; queues.h). Nothing
 * carries a tag: on one communicator the k-th SEND from one rank to another meets the k-th RECV there. A layout with
 * queues for directions or channels has communicators of its own for activations and for gradients; `edge`, `pair` and
 * `rank` do not. */
#ifndef PP_CSV_COMMS_H
#define PP_CSV_COMMS_H

#include "csv.h"
#include "program.h"

enum pp_csv_verdict { PP_CSV_OK, PP_CSV_DEADLOCK, PP_CSV_MISMATCH, PP_CSV_VERDICTS };

extern const char *const pp_csv_verdict_name[PP_CSV_VERDICTS]; /* ok deadlock mismatch */

/* Every value that crosses ranks is sent once after it is made and received once before it is used, and nothing else
 * is; else E0653. E0657 for a blank cell: loaders refuse it beside messages. Requires pp_csv_check. */
bool pp_csv_check_messages(struct pp_arena *arena, const struct pp_csv *csv, struct pp_diag *diag);

/* Requires pp_csv_check_messages. Reports V4 (a cycle of posts) or E0655 (which messages are taken for each other). A
 * step that ends nowhere is a deadlock, whatever was paired before. */
enum pp_csv_verdict pp_csv_run(struct pp_arena *arena, const struct pp_csv *csv, enum pp_layout layout,
                               struct pp_diag *diag);

#endif
