/* What the executor needs to train: batch, data, optimizer, learning rate, logging. Part of the program (tables
 * `train` and `hyper` of its text form) and of the spec. */
#ifndef PP_TRAIN_H
#define PP_TRAIN_H

#include <stdbool.h>
#include <stdint.h>

enum pp_optimizer { PP_ADAMW, PP_SGD, PP_OPTIMIZER_COUNT };
enum pp_mean { PP_TOKEN_MEAN, PP_MB_MEAN, PP_MEAN_COUNT };
enum pp_data { PP_DATA_NONE, PP_DATA_SYNTHETIC, PP_DATA_FILE, PP_DATA_COUNT };
enum pp_tokens { PP_TOKENS_BYTE, PP_TOKENS_U16, PP_TOKENS_U32, PP_TOKENS_COUNT };
enum pp_lr { PP_LR_CONSTANT, PP_LR_COSINE, PP_LR_COUNT };

/* A hyper-parameter row: tensors with and without weight decay use different rows. */
struct pp_hyper {
	double beta1, beta2, eps; /* AdamW; SGD ignores them */
	double weight_decay;
	double clip; /* largest global norm; 0: no clipping */
};

struct pp_train {
	uint32_t microbatch; /* samples per microbatch */
	uint32_t seq;        /* tokens per sample */
	uint32_t vocab;      /* logical size; 0: no data and no loss (custom layers only) */
	uint64_t steps;      /* also the horizon of the learning rate */
	uint64_t seed;
	uint8_t optimizer; /* enum pp_optimizer */
	uint8_t mean;      /* enum pp_mean */
	uint8_t data;      /* enum pp_data */
	uint8_t tokens;    /* enum pp_tokens, files only */
	uint8_t lr_kind;   /* enum pp_lr */
	double lr_peak, lr_floor;
	uint64_t lr_warmup;    /* steps of linear warm-up: step k < warmup uses peak * (k + 1) / warmup */
	double eval_tail;      /* fraction of the data's end that is not trained on, 0 .. 0.9 */
	uint64_t eval_every;   /* steps between two evaluations; 0: only after the last step */
	uint64_t eval_steps;   /* batches of an evaluation, at most; 0: none is made */
	const char *eval_path; /* file of the held-out data; NULL: the tail of the data */
	uint64_t data_seed;    /* synthetic(seed = …) */
	uint64_t log_every;
	uint64_t checkpoint_every;  /* steps between two checkpoints; 0: none are made */
	uint64_t checkpoint_keep;   /* how many of the newest stay; 0: all */
	const char *checkpoint_dir; /* folder that they are saved in; relative to the current folder */
	const char *data_path;      /* PP_DATA_FILE: as written in the spec; relative to the current folder */
	struct pp_hyper *hypers;
	uint32_t hyper_count;
};

extern const char *const pp_optimizer_name[PP_OPTIMIZER_COUNT]; /* adamw sgd */
extern const char *const pp_mean_name[PP_MEAN_COUNT];           /* token_mean mb_mean */
extern const char *const pp_data_name[PP_DATA_COUNT];           /* none synthetic file */
extern const char *const pp_tokens_name[PP_TOKENS_COUNT];       /* byte u16 u32 */
extern const char *const pp_lr_name[PP_LR_COUNT];               /* constant cosine */

#endif
