/* SPDX-License-Identifier: Apache-2.0 */
/* The parameters of a run: muster-train's option table, what is derived from it, and the comparison
 * of a resumed run's parameters with the recorded ones. */
#ifndef MUSTER_SETTINGS_H
#define MUSTER_SETTINGS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "checkpoint/directory/save_schedule.h"
#include "common/err.h"
#include "common/hash.h"
#include "trainer/ddp/ddp.h"
#include "trainer/model/model.h"

enum settings_device { DEVICE_AUTO, DEVICE_CPU, DEVICE_CUDA };
enum settings_reduction { REDUCTION_CANONICAL, REDUCTION_NATIVE };
enum settings_grad_dtype { GRAD_FP32, GRAD_BF16 };
enum settings_nonfinite { NONFINITE_STOP, NONFINITE_SKIP };
enum settings_last_batch { LAST_BATCH_DROP, LAST_BATCH_PAD };
enum settings_isa { ISA_AUTO, ISA_AVX512, ISA_AVX2, ISA_DEFAULT };
enum settings_writers { WRITERS_RANK0, WRITERS_NODE, WRITERS_ALL };
enum settings_precision { PRECISION_AUTO, PRECISION_BF16, PRECISION_FP32, PRECISION_TF32 };
enum settings_attention { ATTENTION_AUTO, ATTENTION_OWN, ATTENTION_CUDNN };
enum settings_graph { GRAPH_AUTO, GRAPH_ON, GRAPH_OFF };
enum settings_order { ORDER_SHUFFLED, ORDER_FILE };

struct settings {
	/* ---- identity: never changes during a run ---- */
	int model;                                         /* enum model_kind */
	int64_t layers, width, heads, context, vocabulary; /* gpt2 */
	int64_t hidden, classes;                           /* mlp */
	int64_t seed, global_batch, slots;
	bool auto_slots;      /* `slots` still depends on the world and the checkpoint */
	bool split_embedding; /* gpt2 */
	int last_batch, order;
	bool batchnorm; /* mlp */
	int precision;  /* auto until the device is chosen */
	/* ---- schedule: changes only where --change names it ---- */
	int64_t steps, warmup_steps,
		decay_steps; /* decay_steps may be OPT_AUTO: settings_decay_steps() */
	double learning_rate, min_learning_rate, weight_decay, beta1, beta2, epsilon, clip;
	/* ---- operation: any attempt may change it ---- */
	const char *data, *labels, *validation_data, *validation_labels, *ckpt_dir, *ckpt_every,
		*change, *rendezvous, *notice, *trace, *trace_steps, *sample_prompt, *tokenizer;
	int64_t microbatch, validate_every, validate_batches, sample_every, sample_tokens, keep_last,
		keep_every, keep_best, shard_size, ckpt_slots;
	int64_t threads, bucket_mb, zero, check_replicas;
	double collective_timeout, rdzv_timeout, save_timeout;
	bool fresh, require_identical, share_gpu, tune, tensorboard;
	int reduction, grad_dtype, device, attention, on_nonfinite, log_level, cpu_isa, ckpt_writers;
	int comm; /* enum ddp_comm */
	int cuda_graph;
	int recompute; /* enum model_recompute, gpt2 */
	const char *config;
	bool print_config;
	const char *plan; /* NULL: a training (world_plan.h) */
	char *texts;      /* the file of --config, which text values may point into */
	/* ---- derived ---- */
	int64_t microbatches;            /* in a step, over all ranks */
	int64_t slot_microbatches;       /* in a slot */
	struct save_schedule schedule;   /* ckpt_every */
	int64_t trace_first, trace_last; /* trace_steps; 0: the attempt's first steps */
};

/* Reads and checks the options: the command line before the variables MUSTER_TRAIN_NAME, these
 * before the file of --config, and that before the defaults. -1 with status EXIT_USAGE and a
 * message that names the option and the remedy. 1: --print-config was asked for, and is written to
 * `out` (NULL: nowhere). --help and --version exit. settings_free releases what text values point
 * into. */
int settings_parse(struct settings *settings, int argc, char **argv, FILE *out, struct err *err);
void settings_free(struct settings *settings);

/* The value of --model, which decides which options apply. */
const char *settings_mode(const struct settings *settings);
int64_t settings_decay_steps(const struct settings *settings);

/* With `auto_slots`: takes the number of slots that the checkpoint has (0: there is none); or, for
 * a new run of more ranks than there are slots, doubles it as long as it divides the microbatches,
 * or else takes the smallest divisor that gives each rank one. Unchanged where nothing fits. */
void settings_fit_slots(struct settings *settings, int64_t recorded, int ranks);

/* Checks that this number of ranks can share a step; the message says what can. */
int settings_check_world(const struct settings *settings, int ranks, struct err *err);

/* The model's dimensions; `features`: columns of the table, 0 for tokens. */
struct model_config settings_model(const struct settings *settings, int features);

/* The reduction that the options ask for; the nodes and --comm are the caller's. Once the number of
 * slots and --bucket-mb are settled. */
struct ddp_config settings_ddp(const struct settings *settings);

/* Makes what a checkpoint records: {"identity": {…, "data": HASH}, "schedule": {…}, "operation":
 * {…}}. NULL when out of memory. */
json_t *settings_record(const struct settings *settings, struct hash128 data);

/* Compares the present parameters with a record. Refuses an identity that differs, with both values
 * (EXIT_USAGE); and a schedule that differs, unless --change names the option: then it appends
 * {"step", "name", "from", "to"} to `changes`. */
int settings_compare(const struct settings *settings, struct hash128 data, const json_t *record,
	uint64_t step, json_t *changes, struct err *err);

/* Compares the present model with an imported checkpoint's; only what its record names counts.
 * Refuses a difference, with both values (EXIT_USAGE). */
int settings_compare_model(const struct settings *settings, const json_t *record, struct err *err);

/* Prints the parameters in force, one line each: name, value, kind. */
void settings_print(const struct settings *settings, FILE *out);

#endif
