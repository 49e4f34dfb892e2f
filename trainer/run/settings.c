/* SPDX-License-Identifier: Apache-2.0 */
/* The options of muster-train's command line, how they depend on each other, and what follows from
 * them. */
#include "trainer/run/settings.h"

#include <argp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "common/record.h"
#include "common/io.h"
#include "common/log.h"
#include "common/number.h"
#include "common/opt.h"
#include "config.h"
#include "order/tree.h"

#define VARIABLES "MUSTER_TRAIN_" /* and an option's name */
#define AT(field) offsetof(struct settings, field)
#define COUNT(name, kind, field, default, from, to, says) \
	{ \
		name, kind, OPT_COUNT, AT(field), default, from, to, .argument = "N", .help = says \
	}
#define COUNT_OR_AUTO(name, kind, field, from, to, says) \
	{ \
		name, kind, OPT_COUNT, AT(field), "auto", from, to, .automatic = true, .argument = "N", \
															.help = says \
	}
#define REAL(name, kind, field, default, from, to, says) \
	{ \
		name, kind, OPT_REAL, AT(field), default, from, to, .argument = "X", .help = says \
	}
#define TEXT(name, kind, field, default, arg, says) \
	{ \
		name, kind, OPT_TEXT, AT(field), default, .argument = arg, .help = says \
	}
#define CHOICE(name, kind, field, default, words, says) \
	{ \
		name, kind, OPT_CHOICE, AT(field), default, .choices = words, .help = says \
	}
#define SWITCH(name, kind, field, says) \
	{ \
		name, kind, OPT_SWITCH, AT(field), .help = says \
	}

static const struct opt table[] = {
	{ "model", OPT_IDENTITY, OPT_CHOICE, AT(model), "gpt2", .choices = "gpt2|mlp",
		.group = "Model:", .help = "GPT-2 on tokens, or Linear-ReLU-Linear on tables" },
	{ "layers", OPT_IDENTITY, OPT_COUNT, AT(layers), "12", 1, 1000, .argument = "N", .mode = "gpt2",
		.help = "gpt2: transformer blocks" },
	{ "width", OPT_IDENTITY, OPT_COUNT, AT(width), "768", 1, 65536, .argument = "N", .mode = "gpt2",
		.help = "gpt2: width of the residual stream" },
	{ "heads", OPT_IDENTITY, OPT_COUNT, AT(heads), "12", 1, 1024, .argument = "N", .mode = "gpt2",
		.help = "gpt2: attention heads" },
	{ "context", OPT_IDENTITY, OPT_COUNT, AT(context), "1024", 1, 65536, .argument = "N",
		.mode = "gpt2", .help = "gpt2: tokens of a sample" },
	{ "vocabulary", OPT_IDENTITY, OPT_COUNT, AT(vocabulary), "50257", 2, 65536, .argument = "N",
		.mode = "gpt2", .help = "gpt2: number of tokens there are" },
	{ "split-embedding", OPT_IDENTITY, OPT_SWITCH, AT(split_embedding), .mode = "gpt2",
		.help = "gpt2: the head's gradient travels early, apart from the tied embedding's; one "
				"more addition" },
	{ "hidden", OPT_IDENTITY, OPT_COUNT, AT(hidden), "256", 1, 1048576, .argument = "N",
		.mode = "mlp", .help = "mlp: units of the hidden layer" },
	{ "classes", OPT_IDENTITY, OPT_COUNT, AT(classes), "10", 2, 65536, .argument = "N",
		.mode = "mlp", .help = "mlp: classes" },
	{ "batchnorm", OPT_IDENTITY, OPT_SWITCH, AT(batchnorm), .mode = "mlp",
		.help = "mlp: normalise the hidden layer over the microbatches that all ranks have in "
				"hand; the number of ranks stays as it is" },
	CHOICE("precision", OPT_IDENTITY, precision, "auto", "auto|bf16|fp32|tf32",
		"of what is computed with; weights, gradients and the optimizer's state are fp32 in any. "
		"auto: bf16 on GPUs, fp32 on CPUs, which have no other"),
	COUNT("seed", OPT_IDENTITY, seed, "1", 0, 9e15,
		"of the initial weights and the order of samples"),

	{ "data", OPT_OPERATION, OPT_TEXT, AT(data), .argument = "FILES", .group = "Data:",
		.help = "tokens (llm.c's .bin or raw uint16), or a table's features (.npy): a file, a "
				"pattern in quotes, or several of both between commas, in the order of their "
				"names; the content is part of the identity" },
	{ "labels", OPT_OPERATION, OPT_TEXT, AT(labels), .argument = "FILES", .mode = "mlp",
		.help = "mlp: the table's classes (.npy)" },
	TEXT("validation-data", OPT_OPERATION, validation_data, NULL, "FILES",
		"the same for the validation loss"),
	{ "validation-labels", OPT_OPERATION, OPT_TEXT, AT(validation_labels), .argument = "FILES",
		.mode = "mlp", .help = "mlp: classes of the validation data" },
	CHOICE("order", OPT_IDENTITY, order, "shuffled", "shuffled|file",
		"order of the samples in an epoch"),
	CHOICE("last-batch", OPT_IDENTITY, last_batch, "drop", "drop|pad",
		"the last, partial batch of an epoch: drop it, or use it padded with places that do not "
		"count"),

	{ "global-batch", OPT_IDENTITY, OPT_COUNT, AT(global_batch), "32", 1, 1048576, .argument = "N",
		.group = "Batch:", .help = "samples of a step, over all ranks" },
	COUNT("microbatch", OPT_OPERATION, microbatch, "4", 1, 65536,
		"samples that are computed at once; part of the numerics record"),
	COUNT_OR_AUTO("slots", OPT_IDENTITY, slots, 1, TREE_SLOTS_MAX,
		"parts in which a step is summed, the largest world size; auto: the largest power of two "
		"that divides the microbatches of a step, at most 64; more where more ranks begin a run"),

	{ "steps", OPT_SCHEDULE, OPT_COUNT, AT(steps), "1000", 1, 9e15, .argument = "N",
		.group = "Schedule:", .help = "steps of the whole run" },
	REAL("learning-rate", OPT_SCHEDULE, learning_rate, "0.0006", 0, 1e3, "after the warm-up"),
	REAL("min-learning-rate", OPT_SCHEDULE, min_learning_rate, "6e-05", 0, 1e3,
		"at the end of the cosine decay"),
	COUNT("warmup-steps", OPT_SCHEDULE, warmup_steps, "0", 0, 9e15, "steps of linear warm-up"),
	COUNT_OR_AUTO("decay-steps", OPT_SCHEDULE, decay_steps, 1, 9e15,
		"step at which the decay ends; auto: --steps"),
	REAL("weight-decay", OPT_SCHEDULE, weight_decay, "0.1", 0, 1e3,
		"AdamW's decoupled decay, on matrices only"),
	REAL("beta1", OPT_SCHEDULE, beta1, "0.9", 0, 0.9999999, "AdamW"),
	REAL("beta2", OPT_SCHEDULE, beta2, "0.95", 0, 0.9999999, "AdamW"),
	REAL("epsilon", OPT_SCHEDULE, epsilon, "1e-08", 1e-30, 1, "AdamW"),
	REAL("clip", OPT_SCHEDULE, clip, "1", 0, 1e30, "largest gradient norm; 0: no clipping"),
	TEXT("change", OPT_OPERATION, change, NULL, "NAME[,NAME]",
		"allow these schedule options to differ from the checkpoint's; recorded with the step"),

	{ "ckpt-dir", OPT_OPERATION, OPT_TEXT, AT(ckpt_dir), .argument = "DIR",
		.group = "Checkpoint and resume:",
		.help = "where checkpoints, metrics and attempts are kept; the newest valid checkpoint "
				"there is resumed" },
	TEXT("ckpt-every", OPT_OPERATION, ckpt_every, "100", "N[steps|s|m|h]|auto",
		"steps or time between checkpoints; auto: from what a save costs and how often the run was "
		"interrupted; 0: only at a stop and at the end"),
	COUNT("keep-last", OPT_OPERATION, keep_last, "3", 0, 1e6,
		"newest checkpoints that are kept; 0: all"),
	COUNT("keep-every", OPT_OPERATION, keep_every, "0", 0, 9e15,
		"checkpoints of steps that are multiples of this are kept for ever; 0: none"),
	COUNT("keep-best", OPT_OPERATION, keep_best, "0", 0, 1e6,
		"checkpoints with the lowest validation loss, measured at their very step, that are kept; "
		"0: none"),
	CHOICE("ckpt-writers", OPT_OPERATION, ckpt_writers, "rank0", "rank0|node|all",
		"who writes the shards of a checkpoint, all in parallel: rank 0, the first rank of each "
		"node, or every rank"),
	{ "shard-size", OPT_OPERATION, OPT_SIZE, AT(shard_size), "4GiB", 1, 9e15, .argument = "SIZE",
		.help =
			"bytes of a checkpoint's file at most; a tensor that is larger has one of its own" },
	COUNT_OR_AUTO("ckpt-slots", OPT_OPERATION, ckpt_slots, 1, 2,
		"snapshots that are kept in memory; with 1 a save waits until the one before is written; "
		"auto: 2 where they fit"),
	SWITCH("fresh", OPT_OPERATION, fresh,
		"begin at step 0; refused where --ckpt-dir holds a run already"),
	SWITCH("require-identical", OPT_OPERATION, require_identical,
		"refuse to resume where the numerics differ, and ranks whose numerics differ"),
	REAL("save-timeout", OPT_OPERATION, save_timeout, "3600", 1, 1e6,
		"seconds that a closing save may take"),

	{ "validate-every", OPT_OPERATION, OPT_COUNT, AT(validate_every), "0", 0, 9e15, .argument = "N",
		.group = "Validation:", .help = "steps between validation losses; 0: none" },
	COUNT("validate-batches", OPT_OPERATION, validate_batches, "0", 0, 1e12,
		"global batches of validation data that are used; 0: all"),
	{ "sample-every", OPT_OPERATION, OPT_COUNT, AT(sample_every), "0", 0, 9e15, .argument = "N",
		.mode = "gpt2",
		.help = "gpt2: steps between lines of text that the model writes as far as it is trained; "
				"0: none" },
	{ "sample-prompt", OPT_OPERATION, OPT_TEXT, AT(sample_prompt), .argument = "TEXT",
		.mode = "gpt2", .help = "gpt2: what these lines go on from; else a new line" },
	{ "sample-tokens", OPT_OPERATION, OPT_COUNT, AT(sample_tokens), "64", 1, 65536, .argument = "N",
		.mode = "gpt2", .help = "gpt2: tokens that are added to it" },
	{ "tokenizer", OPT_OPERATION, OPT_TEXT, AT(tokenizer), .argument = "FILE", .mode = "gpt2",
		.help = "gpt2: the tokenizer.json that made the tokens of the data, for these lines; else "
				"the one in --ckpt-dir; else tokens are bytes" },

	{ "reduction", OPT_OPERATION, OPT_CHOICE, AT(reduction), "canonical",
		.choices = "canonical|native", .group = "Operation:",
		.help = "canonical: the same bits at every world size; native: the library's order" },
	CHOICE("grad-dtype", OPT_OPERATION, grad_dtype, "fp32", "fp32|bf16",
		"of the gradients on their way between ranks; bf16 with --reduction native only"),
	COUNT("zero", OPT_OPERATION, zero, "0", 0, 1,
		"1: each rank keeps and saves its share of the optimizer's state only (ZeRO-1); the bits "
		"stay the same"),
	CHOICE("on-nonfinite", OPT_OPERATION, on_nonfinite, "stop", "stop|skip",
		"a loss or gradient norm that is not finite: end the run, or leave the step out"),
	CHOICE("device", OPT_OPERATION, device, "auto", "auto|cpu|cuda",
		"where to compute; auto: on a GPU where one is visible"),
	{ "recompute", OPT_OPERATION, OPT_CHOICE, AT(recompute), "none",
		.choices = "none|norm|mlp|block", .mode = "gpt2",
		.help =
			"gpt2: what a block forgets in the forward pass, for less memory, and computes again "
			"in the backward pass, to the same bits: layer norms, the hidden layer too, or all" },
	CHOICE("cuda-graph", OPT_OPERATION, cuda_graph, "auto", "auto|on|off",
		"on GPUs, replay a microbatch's passes as one graph; auto: where that makes the first "
		"steps shorter"),
	SWITCH("share-gpu", OPT_OPERATION, share_gpu,
		"let several ranks have one GPU; for tests, since each is slow then"),
	{ "attention", OPT_OPERATION, OPT_CHOICE, AT(attention), "auto", .choices = "auto|own|cudnn",
		.mode = "gpt2",
		.help =
			"gpt2: whose attention to compute with on a GPU; auto: the checkpoint's, or cuDNN's "
			"in bf16 where all ranks have it; part of the numerics record" },
	SWITCH("tune", OPT_OPERATION, tune,
		"on a GPU, time the library's algorithms for each matrix product before the first step, "
		"for half a minute at most, and take the fastest"),
	COUNT_OR_AUTO("threads", OPT_OPERATION, threads, 1, 4096,
		"compute threads of a rank; auto: its share of the CPUs"),
	CHOICE("cpu-isa", OPT_OPERATION, cpu_isa, "auto", "auto|avx512|avx2|default",
		"pins the instruction set, so that different CPUs give the same bits"),
	CHOICE("comm", OPT_OPERATION, comm, "real", "real|none|replay",
		"real: a training; for measuring, none: the same without any exchange of gradients, "
		"replay: the exchanges alone"),
	COUNT_OR_AUTO("bucket-mb", OPT_OPERATION, bucket_mb, 1, 4096,
		"MB of gradients that are reduced in one collective; auto: a sixteenth of them, at most "
		"25 on up to 100 ranks"),
	REAL("collective-timeout", OPT_OPERATION, collective_timeout, "600", 0.1, 1e6,
		"seconds that a rank waits in a collective in which nothing moves, before the run ends "
		"with status 69"),
	COUNT("check-replicas", OPT_OPERATION, check_replicas, "100", 0, 9e15,
		"steps between comparisons of all ranks' weights, which end a run whose replicas have "
		"drifted apart; 0: none"),
	TEXT("rendezvous", OPT_OPERATION, rendezvous, NULL, "NAME",
		"pmix, pmi2, file or single; else the first that fits"),
	TEXT("notice", OPT_OPERATION, notice, NULL, "SOURCE",
		"who tells that a spot node is about to be taken away: auto (the cloud that this machine "
		"is in), off, aws, gcp, azure, one of these with =URL, or the URL of a page; else what "
		"MUSTER_NOTICE says, or auto"),
	REAL("rdzv-timeout", OPT_OPERATION, rdzv_timeout, "60", 0.1, 1e6,
		"seconds within which all ranks must have come"),
	TEXT("trace", OPT_OPERATION, trace, NULL, "FILE",
		"what each rank computes and sends when, on one time axis, as Perfetto and "
		"chrome://tracing show it"),
	TEXT("trace-steps", OPT_OPERATION, trace_steps, NULL, "A-B",
		"steps of --trace; else the first ten of the attempt"),
	SWITCH("tensorboard", OPT_OPERATION, tensorboard,
		"also write the metrics as event files, for tensorboard --logdir CKPT-DIR"),
	CHOICE("log-level", OPT_OPERATION, log_level, "info", "error|warn|info|debug",
		"what is logged"),
	{ "config", OPT_OPERATION, OPT_TEXT, AT(config), .argument = "FILE", .flag_only = true,
		.help = "read options from lines \"name = value\"; a variable MUSTER_TRAIN_NAME has "
				"precedence, and the command line over that" },
	{ "print-config", OPT_OPERATION, OPT_SWITCH, AT(print_config), .flag_only = true,
		.help = "write a file for --config that repeats this run, with the source of each value, "
				"and end" },
	{ "plan", OPT_OPERATION, OPT_TEXT, AT(plan), .argument = "NODESxRANKS[@GBIT]",
		.flag_only = true,
		.help = "print what a step of this run needs and sends on so many nodes, with so many "
				"ranks on each and GBIT/s (100) from each to others, and end; --data may be "
				"missing then, except for a table" },
	{ 0 }
};

#define ROWS (sizeof table / sizeof table[0])

static const char doc[] =
	"Trains a model, data-parallel over all tasks of the job step.\vA change of an identity option "
	"is refused when a run is resumed; a change of a schedule option is refused unless --change "
	"names it. All others are free.\n"
	"Exit status: 0 finished, 1 fault, 2 usage, 65 bad data or checkpoint, 69 peer lost or "
	"deadline passed, 75 checkpointed, to be requeued.";

const char *settings_mode(const struct settings *settings)
{
	return settings->model == MODEL_GPT2 ? "gpt2" : "mlp";
}

int64_t settings_decay_steps(const struct settings *settings)
{
	return settings->decay_steps == OPT_AUTO ? settings->steps : settings->decay_steps;
}

static int check_mode(const struct settings *settings, const bool *given, struct err *err)
{
	for (int i = 0; table[i].name; i++)
		if (given[i] && table[i].mode && strcmp(table[i].mode, settings_mode(settings)) != 0)
			return err_fail(err, EXIT_USAGE,
				"--%s belongs to --model %s: leave it out or change --model", table[i].name,
				table[i].mode);
	return 0;
}

static int check_data(const struct settings *settings, struct err *err)
{
	bool tables = settings->model == MODEL_MLP;
	if (!settings->data && (tables || !settings->plan))
		return err_fail(err, EXIT_USAGE,
			"--data is missing: give the training data, as muster-tokens makes it from text");
	if (tables && !settings->labels)
		return err_fail(err, EXIT_USAGE,
			"--labels is missing: --model mlp needs the classes of --data");
	if (tables && settings->validation_data && !settings->validation_labels)
		return err_fail(err, EXIT_USAGE,
			"--validation-labels is missing: give the classes of --validation-data");
	if (settings->validate_every && !settings->validation_data)
		return err_fail(err, EXIT_USAGE,
			"--validate-every %lld has no data: give --validation-data",
			(long long)settings->validate_every);
	return 0;
}

/* Derives microbatches and slots, and checks that they divide each other. */
static int derive_slots(struct settings *settings, struct err *err)
{
	if (settings->global_batch % settings->microbatch)
		return err_fail(err, EXIT_USAGE,
			"--global-batch %lld is no multiple of --microbatch %lld: change one of them",
			(long long)settings->global_batch, (long long)settings->microbatch);
	settings->microbatches = settings->global_batch / settings->microbatch;
	settings->auto_slots = settings->slots == OPT_AUTO;
	if (settings->auto_slots)
		for (settings->slots = 1;
			 settings->slots < 64 && settings->microbatches % (settings->slots * 2) == 0;)
			settings->slots *= 2;
	if (settings->microbatches % settings->slots)
		return err_fail(err, EXIT_USAGE,
			"--slots %lld does not divide the %lld microbatches of a step (--global-batch %lld in "
			"microbatches of %lld): give a divisor",
			(long long)settings->slots, (long long)settings->microbatches,
			(long long)settings->global_batch, (long long)settings->microbatch);
	settings->slot_microbatches = settings->microbatches / settings->slots;
	return 0;
}

void settings_fit_slots(struct settings *settings, int64_t recorded, int ranks)
{
	const int64_t all = settings->microbatches;
	int64_t slots = settings->slots;
	if (!settings->auto_slots)
		return;
	while (slots < ranks && all % (slots * 2) == 0)
		slots *= 2;
	if (slots < ranks)
		for (slots = ranks; slots < all && all % slots;)
			slots++;
	if (recorded > 0)
		slots = recorded;
	if (slots > TREE_SLOTS_MAX || all % slots)
		return;
	settings->slots = slots;
	settings->slot_microbatches = all / slots;
}

int settings_check_world(const struct settings *settings, int ranks, struct err *err)
{
	if (ranks > settings->slots)
		return err_fail(err, EXIT_USAGE,
			"%d ranks can't share the %lld slots of a step, some would have none: start 1 to %lld "
			"ranks, or a new run with --slots %d or more",
			ranks, (long long)settings->slots, (long long)settings->slots, ranks);
	if (settings->batchnorm && settings->slots % ranks)
		return err_fail(err, EXIT_USAGE,
			"%d ranks can't share the %lld slots of a step evenly, and with --batchnorm all have "
			"to normalise as many batches: start a number of ranks that divides --slots",
			ranks, (long long)settings->slots);
	if (settings->batchnorm && settings->microbatch * ranks < 2)
		return err_fail(err, EXIT_USAGE,
			"--batchnorm has nothing to normalise over with one rank and --microbatch 1: give a "
			"larger --microbatch, or start more ranks");
	return 0;
}

static int check_schedule(const struct settings *settings, struct err *err)
{
	if (settings->min_learning_rate > settings->learning_rate)
		return err_fail(err, EXIT_USAGE,
			"--min-learning-rate %g is above --learning-rate %g: lower it",
			settings->min_learning_rate, settings->learning_rate);
	return 0;
}

static bool names(const char *list, const char *name)
{
	size_t length = strlen(name);
	for (const char *p = list; p && *p; p += strcspn(p, ",") + (p[strcspn(p, ",")] == ','))
		if (strcspn(p, ",") == length && strncmp(p, name, length) == 0)
			return true;
	return false;
}

/* Checks that --change names only schedule options. */
static int check_change(const struct settings *settings, struct err *err)
{
	for (const char *p = settings->change; p && *p;
		 p += strcspn(p, ",") + (p[strcspn(p, ",")] == ',')) {
		char name[64];
		snprintf(name, sizeof name, "%.*s", (int)strcspn(p, ","), p);
		int row = opt_find(table, name);
		if (row < 0)
			return err_fail(err, EXIT_USAGE,
				"--change names \"%s\", which is no option: give it without dashes", name);
		if (table[row].kind == OPT_IDENTITY)
			return err_fail(err, EXIT_USAGE,
				"--change %s: it is part of the run's identity and never changes; start a new run "
				"in another --ckpt-dir",
				name);
		if (table[row].kind == OPT_OPERATION)
			return err_fail(err, EXIT_USAGE,
				"--change %s: that one may change at any time; leave --change out", name);
	}
	return 0;
}

static int check_checkpoints(struct settings *settings, struct err *err)
{
	if (save_schedule_parse(settings->ckpt_every, &settings->schedule, err) < 0)
		return -1;
	if (settings->keep_best && !settings->validate_every)
		return err_fail(err, EXIT_USAGE,
			"--keep-best %lld has no validation loss to go by: give --validation-data and "
			"--validate-every",
			(long long)settings->keep_best);
	if (settings->fresh && !settings->ckpt_dir)
		return err_fail(err, EXIT_USAGE,
			"--fresh has no directory: give --ckpt-dir, or leave it out");
	if (settings->tensorboard && !settings->ckpt_dir)
		return err_fail(err, EXIT_USAGE,
			"--tensorboard has no directory: give --ckpt-dir, or leave it out");
	return 0;
}

/* Reads --trace-steps, "A-B" or one step. */
static int check_trace(struct settings *settings, struct err *err)
{
	char first[24];
	const char *text = settings->trace_steps, *dash = text ? strchr(text, '-') : NULL;
	if (!text)
		return 0;
	if (!settings->trace)
		return err_fail(err, EXIT_USAGE, "--trace-steps %s has no file: give --trace FILE", text);
	snprintf(first, sizeof first, "%.*s", dash ? (int)(dash - text < 23 ? dash - text : 23) : 23,
		text);
	if (!number_whole(first, 1, (int64_t)9e15, &settings->trace_first)
		|| !number_whole(dash ? dash + 1 : first, settings->trace_first, (int64_t)9e15,
			&settings->trace_last))
		return err_fail(err, EXIT_USAGE,
			"--trace-steps \"%s\" is no range of steps: give the first and the last, such as 11-20",
			text);
	return 0;
}

/* Options of the lines of text without which there are none. */
static int check_sample(const struct settings *settings, const bool *given, struct err *err)
{
	static const char *const parts[] = { "sample-prompt", "sample-tokens", "tokenizer" };
	for (size_t i = 0; i < sizeof parts / sizeof parts[0] && !settings->sample_every; i++)
		if (given[opt_find(table, parts[i])])
			return err_fail(err, EXIT_USAGE,
				"--%s is for the text that --sample-every writes: give that too, or leave it out",
				parts[i]);
	return 0;
}

static int check_reduction(const struct settings *settings, struct err *err)
{
	if (settings->grad_dtype == GRAD_BF16 && settings->reduction != REDUCTION_NATIVE)
		return err_fail(err, EXIT_USAGE,
			"--grad-dtype bf16 rounds sums on their way, so that bits depend on the number of "
			"ranks: give --reduction native too, or leave it out");
	return 0;
}

/* With --zero 1 every rank must write, since each has moments that no other has. */
static int check_zero(struct settings *settings, const bool *given, struct err *err)
{
	if (!settings->zero)
		return 0;
	if (settings->reduction != REDUCTION_CANONICAL)
		return err_fail(err, EXIT_USAGE,
			"--zero 1 shares out what --reduction canonical sums: leave --reduction native out, or "
			"--zero");
	if (given[opt_find(table, "ckpt-writers")] && settings->ckpt_writers != WRITERS_ALL)
		return err_fail(err, EXIT_USAGE,
			"--zero 1 makes every rank write what it alone has: leave --ckpt-writers out");
	settings->ckpt_writers = WRITERS_ALL;
	return 0;
}

/* Refuses options that need a trained model where a step is only measured. */
static int check_comm(struct settings *settings, const bool *given, struct err *err)
{
	static const char *const senseless[] = { "ckpt-dir", "validate-every", "check-replicas",
		"sample-every" };
	const char *word = settings->comm == DDP_COMM_NONE ? "none" : "replay";
	if (settings->comm == DDP_COMM_REAL)
		return 0;
	for (size_t i = 0; i < sizeof senseless / sizeof senseless[0]; i++)
		if (given[opt_find(table, senseless[i])])
			return err_fail(err, EXIT_USAGE,
				"--comm %s measures a step and trains no model, so there is nothing for --%s: "
				"leave one of them out",
				word, senseless[i]);
	settings->check_replicas = 0;
	return 0;
}

static int check(struct settings *settings, const bool *given, struct err *err)
{
	if (check_mode(settings, given, err) < 0 || check_data(settings, err) < 0
		|| derive_slots(settings, err) < 0 || check_schedule(settings, err) < 0
		|| check_change(settings, err) < 0 || check_checkpoints(settings, err) < 0
		|| check_reduction(settings, err) < 0 || check_trace(settings, err) < 0
		|| check_sample(settings, given, err) < 0 || check_zero(settings, given, err) < 0
		|| check_comm(settings, given, err) < 0)
		return -1;
#ifndef HAVE_CUBLAS
	if (settings->device == DEVICE_CUDA)
		return err_fail(err, EXIT_USAGE,
			"--device cuda: this build computes on the CPU only: build it with --with-cuda, or use "
			"--device cpu or auto");
#endif
	return 0;
}

/* Where each value comes from: the last of these that has it. */
struct sources {
	int lines[ROWS]; /* of the file */
	bool variables[ROWS], flags[ROWS], given[ROWS];
};

static bool is_equal(const struct opt *opt, const struct settings *a, const struct settings *b)
{
	char first[OPT_TEXT_SIZE], second[OPT_TEXT_SIZE];
	return strcmp(opt_text(opt, a, first, sizeof first), opt_text(opt, b, second, sizeof second))
		== 0;
}

/* A default that a file of --print-config has counts as not given: some are refused beside others.
 * The command line is read before the others, for --config, and once more after them. */
static int read_sources(struct settings *settings, struct sources *from, int argc, char **argv,
	struct err *err)
{
	if (opt_parse(table, doc, argc, argv, settings, from->flags, err) < 0)
		return -1;
	const char *file = settings->config;
	struct settings defaults = { 0 };
	if (opt_defaults(table, &defaults, err) < 0 || opt_defaults(table, settings, err) < 0)
		return -1;
	if (file && opt_read_file(table, file, settings, from->lines, &settings->texts, err) < 0)
		return err_prefix(err, "--config");
	if (opt_read_variables(table, VARIABLES, settings, from->variables, err) < 0
		|| opt_flags(table, doc, argc, argv, settings, from->flags, err) < 0)
		return -1;
	for (int i = 0; table[i].name; i++)
		from->given[i] = from->variables[i] || from->flags[i]
			|| (from->lines[i] && !is_equal(&table[i], settings, &defaults));
	return 0;
}

static void print_source(const struct settings *settings, const struct sources *from, int row,
	FILE *out)
{
	char name[80];
	if (from->flags[row])
		fputs("the command line", out);
	else if (from->variables[row])
		fputs(opt_variable(&table[row], VARIABLES, name, sizeof name), out);
	else if (from->lines[row])
		fprintf(out, "line %d of %s", from->lines[row], settings->config);
	else
		fputs("default", out);
}

static int print_config(const struct settings *settings, const struct sources *from, FILE *out,
	struct err *err)
{
	char line[OPT_LINE_SIZE];
	fputs("# " PACKAGE_STRING ": muster-train --config FILE repeats this run\n", out);
	for (int i = 0; table[i].name; i++) {
		const struct opt *opt = &table[i];
		char text[OPT_TEXT_SIZE];
		const bool is_unset = !*opt_text(opt, settings, text, sizeof text);
		if (is_unset || opt->flag_only
			|| (opt->mode && strcmp(opt->mode, settings_mode(settings)) != 0))
			continue;
		if (opt_line(opt, settings, line, sizeof line, err) < 0)
			return -1;
		fprintf(out, "%-40s # ", line);
		print_source(settings, from, i, out);
		fputc('\n', out);
	}
	return io_flush_output(err);
}

int settings_parse(struct settings *settings, int argc, char **argv, FILE *out, struct err *err)
{
	struct sources from = { 0 };
	argp_program_version = PACKAGE_STRING;
	memset(settings, 0, sizeof *settings);
	if (read_sources(settings, &from, argc, argv, err) < 0)
		return -1;
	const struct settings asked = *settings; /* before what follows from it */
	if (check(settings, from.given, err) < 0)
		return -1;
	if (!asked.print_config)
		return 0;
	return out && print_config(&asked, &from, out, err) < 0 ? -1 : 1;
}

void settings_free(struct settings *settings)
{
	free(settings->texts);
	settings->texts = NULL;
}

struct model_config settings_model(const struct settings *settings, int features)
{
	if (settings->model == MODEL_MLP)
		return (struct model_config) { .kind = MODEL_MLP,
			.inputs = features,
			.hidden = (int)settings->hidden,
			.classes = (int)settings->classes,
			.batchnorm = settings->batchnorm };
	return (struct model_config) { .kind = MODEL_GPT2,
		.layers = (int)settings->layers,
		.width = (int)settings->width,
		.heads = (int)settings->heads,
		.context = (int)settings->context,
		.vocabulary = (int)settings->vocabulary,
		.split_embedding = settings->split_embedding,
		.recompute = (enum model_recompute)settings->recompute };
}

struct ddp_config settings_ddp(const struct settings *settings)
{
	return (struct ddp_config) { .slots = (int)settings->slots,
		.bucket_bytes = (size_t)settings->bucket_mb << 20,
		.native = settings->reduction == REDUCTION_NATIVE,
		.bf16 = settings->grad_dtype == GRAD_BF16,
		.zero = settings->zero != 0 };
}

json_t *settings_record(const struct settings *settings, struct hash128 data)
{
	char hex[HASH_HEX_SIZE];
	json_t *identity = opt_record(table, OPT_IDENTITY, settings_mode(settings), settings);
	json_t *schedule = opt_record(table, OPT_SCHEDULE, settings_mode(settings), settings);
	json_t *operation = opt_record(table, OPT_OPERATION, settings_mode(settings), settings);
	/* "o" takes over the references, even when packing fails. */
	identity = record_set(identity, "data", json_string(hash_hex(data, hex)));
	return json_pack("{s:o, s:o, s:o}", "identity", identity, "schedule", schedule, "operation",
		operation);
}

struct compare {
	const struct settings *settings;
	uint64_t step;
	json_t *changes;
};

static int refuse_identity(void *arg, const struct opt *opt, const char *recorded,
	const char *present, struct err *err)
{
	(void)arg;
	return err_fail(err, EXIT_USAGE,
		"resume: --%s is %s, but the run in this --ckpt-dir was begun with %s: give the old value, "
		"or start a new run in another directory",
		opt->name, present, recorded);
}

static int record_change(void *arg, const struct opt *opt, const char *recorded,
	const char *present, struct err *err)
{
	struct compare *compare = arg;
	if (!names(compare->settings->change, opt->name))
		return err_fail(err, EXIT_USAGE,
			"resume: --%s is %s, but the checkpoint of step %llu has %s: give the old value, or "
			"--change %s to go on with the new one",
			opt->name, present, (unsigned long long)compare->step, recorded, opt->name);
	log_info("resume: --%s changes from %s to %s after step %llu", opt->name, recorded, present,
		(unsigned long long)compare->step);
	json_t *change = json_pack("{s:I, s:s, s:s, s:s}", "step", (json_int_t)compare->step, "name",
		opt->name, "from", recorded, "to", present);
	if (!change || json_array_append_new(compare->changes, change) < 0)
		return err_set(err, "resume: out of memory");
	return 0;
}

int settings_compare(const struct settings *settings, struct hash128 data, const json_t *record,
	uint64_t step, json_t *changes, struct err *err)
{
	struct compare compare = { settings, step, changes };
	char hex[HASH_HEX_SIZE];
	const json_t *recorded = json_object_get(record, "identity");
	const char *recorded_data = json_string_value(json_object_get(recorded, "data"));
	json_t *identity = json_copy((json_t *)recorded);
	if (recorded && !identity)
		return err_set(err, "resume: out of memory");
	json_object_del(identity, "data");
	if (!json_object_get(identity, "precision")) /* written by a version that had only fp32 */
		identity = record_set(identity, "precision", json_string("fp32"));
	int rc = opt_compare(table, OPT_IDENTITY, settings_mode(settings), identity, settings,
		refuse_identity, &compare, err);
	json_decref(identity);
	if (rc < 0)
		return -1;
	if (!recorded_data || strcmp(recorded_data, hash_hex(data, hex)) != 0)
		return err_fail(err, EXIT_USAGE,
			"resume: --data has the identity %s, but the run in this --ckpt-dir was begun with "
			"data of %s: give the old data, or start a new run in another directory",
			hex, recorded_data ? recorded_data : "no identity");
	return opt_compare(table, OPT_SCHEDULE, settings_mode(settings),
		json_object_get(record, "schedule"), settings, record_change, &compare, err);
}

static int refuse_model(void *arg, const struct opt *opt, const char *recorded, const char *present,
	struct err *err)
{
	(void)arg;
	return err_fail(err, EXIT_USAGE,
		"resume: --%s is %s, but the imported model in this --ckpt-dir has %s: give its value",
		opt->name, present, recorded);
}

int settings_compare_model(const struct settings *settings, const json_t *record, struct err *err)
{
	/* Options that the record does not name count as equal. */
	json_t *merged = opt_record(table, OPT_IDENTITY, settings_mode(settings), settings);
	if (!merged || json_object_update(merged, json_object_get(record, "identity")) < 0) {
		json_decref(merged);
		return err_set(err, "resume: couldn't look at the imported model's configuration");
	}
	int rc = opt_compare(table, OPT_IDENTITY, settings_mode(settings), merged, settings,
		refuse_model, NULL, err);
	json_decref(merged);
	return rc;
}

void settings_print(const struct settings *settings, FILE *out)
{
	static const char *const kinds[] = { "identity", "schedule", "" };
	for (const struct opt *opt = table; opt->name; opt++) {
		char text[300];
		if (opt->mode && strcmp(opt->mode, settings_mode(settings)) != 0)
			continue;
		opt_text(opt, settings, text, sizeof text);
		fprintf(out, "  %-20s %-24s %s\n", opt->name, *text ? text : "-", kinds[opt->kind]);
	}
}
