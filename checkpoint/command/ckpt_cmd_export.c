/* SPDX-License-Identifier: Apache-2.0 */
/* muster-ckpt export: writes a checkpoint's model for Hugging Face. The new directory appears under
 * its name whole and durable, or not at all. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/command/ckpt_cmd.h"
#include "checkpoint/command/ckpt_words.h"
#include "checkpoint/convert/hf_export.h"
#include "checkpoint/directory/remove.h"
#include "common/auto.h"
#include "common/io.h"
#include "common/number.h"
#include "common/progress.h"

#define SHARD_SIZE UINT64_C(5000000000) /* the default of Hugging Face's save_pretrained */

struct options {
	struct ckpt_words words; /* the checkpoint, and the directory to create */
	const char *step;
	enum safetensors_dtype dtype;
	uint64_t shard_size;
};

static const struct argp_option option_rows[] = {
	{ "step", 's', "STEP", 0, "of the checkpoints in DIR, that of STEP (default: the newest)", 0 },
	{ "dtype", 't', "fp32|bf16", 0,
		"type of the weights (default: fp32). bf16 is rounded to the nearest, ties to even", 0 },
	{ "shard-size", 'S', "SIZE", 0,
		"bytes of a file at most, with K, M or G for powers of 1024; 0: one file (default: "
		"5000000000)",
		0 },
	CKPT_WORDS_JSON,
	{ 0 },
};

static uint64_t parse_size(const char *text, struct argp_state *state)
{
	int64_t size = 0;
	if (!number_bytes(text, 0, INT64_MAX, &size))
		argp_error(state, "--shard-size=%s is no size: give bytes, such as 5000000000, or 4GiB",
			text);
	return (uint64_t)size;
}

static enum safetensors_dtype parse_dtype(const char *text, struct argp_state *state)
{
	if (strcmp(text, "fp32") != 0 && strcmp(text, "bf16") != 0)
		argp_error(state, "--dtype=%s: give fp32 or bf16", text);
	return strcmp(text, "fp32") == 0 ? SAFETENSORS_F32 : SAFETENSORS_BF16;
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct options *options = state->input;
	switch (key) {
	case 's': options->step = arg; return 0;
	case 'S': options->shard_size = parse_size(arg, state); return 0;
	case 't': options->dtype = parse_dtype(arg, state); return 0;
	default: return ckpt_words_parse(key, arg, state);
	}
}

static const struct argp argp = { .options = option_rows,
	.parser = parse_option,
	.args_doc = "DIR|STEPDIR OUT",
	.doc = "Makes the directory OUT with only the model of a checkpoint: config.json and "
		   "model.safetensors, or shards with their index. Hugging Face's from_pretrained opens "
		   "it. OUT must not exist." };

static volatile sig_atomic_t caught;

static void catch (int signal_number)
{
	caught = signal_number;
}

static void catch_signals(void)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction action = { .sa_handler = catch, .sa_flags = SA_RESTART };
	sigemptyset(&action.sa_mask);
	for (int i = 0; i < 3; i++)
		sigaction(signals[i], &action, NULL);
}

/* The state of one export. */
struct exporting {
	const struct options *options;
	struct ckpt_place place;
	struct ckpt *ckpt;
	struct ckpt_dir parent; /* the directory that holds OUT */
	char name[256], temporary[300];
	struct progress progress;
	size_t files;
	uint64_t bytes;
};

static int advance(void *arg, uint64_t bytes)
{
	progress_add(arg, bytes);
	return caught;
}

/* Splits OUT into its parent, which must exist, and its name, which must not. */
static int open_parent(struct exporting *e, struct err *err)
{
	char path[sizeof e->parent.path];
	struct stat st;
	size_t length = strlen(e->options->words.word[1]);
	while (length > 1 && e->options->words.word[1][length - 1] == '/')
		length--;
	if (length >= sizeof path)
		return err_fail(err, EXIT_USAGE, "export: the path of OUT is too long");
	snprintf(path, sizeof path, "%.*s", (int)length, e->options->words.word[1]);
	char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;
	if (!name[0] || strcmp(name, ".") == 0 || strcmp(name, "..") == 0
		|| strlen(name) >= sizeof e->name)
		return err_fail(err, EXIT_USAGE, "export: %s is no name for a new directory",
			e->options->words.word[1]);
	snprintf(e->name, sizeof e->name, "%s", name);
	snprintf(e->temporary, sizeof e->temporary, ".%.200s.export-%d", name, (int)getpid());
	if (slash)
		slash[slash == path] = '\0';
	if (ckpt_dir_open_existing(&e->parent, slash ? path : ".", err) < 0)
		return -1;
	if (fstatat(e->parent.fd, e->name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return err_fail(err, EXIT_USAGE, "export: %s exists: give a new name, or remove it",
			e->options->words.word[1]);
	return 0;
}

static int write_folder(struct exporting *e, const char *config, struct err *err)
{
	const struct hf_export export = { .dtype = e->options->dtype,
		.shard_size = e->options->shard_size,
		.config = config,
		.progress = advance,
		.arg = &e->progress };
	if (mkdirat(e->parent.fd, e->temporary, 0755) < 0)
		return err_fail(err, io_status(errno), "export: couldn't make %s/%s: %m", e->parent.path,
			e->temporary);
	AUTO_CLOSE int fd =
		openat(e->parent.fd, e->temporary, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return err_fail(err, io_status(errno), "export: couldn't open %s/%s: %m", e->parent.path,
			e->temporary);
	return hf_export(e->ckpt, fd, &export, &e->files, &e->bytes, err);
}

static int commit(const struct exporting *e, struct err *err)
{
	if (renameat2(e->parent.fd, e->temporary, e->parent.fd, e->name, RENAME_NOREPLACE) < 0
		&& (errno != EINVAL || renameat(e->parent.fd, e->temporary, e->parent.fd, e->name) < 0))
		return err_fail(err, io_status(errno), "export: couldn't rename %s/%s to %s: %m",
			e->parent.path, e->temporary, e->name);
	return io_sync_dir(e->parent.fd, err);
}

static uint64_t bytes_to_write(const struct exporting *e)
{
	uint64_t bytes = 0;
	for (size_t i = 0; i < ckpt_tensor_count(e->ckpt); i++) {
		const struct safetensors_tensor *tensor = ckpt_tensor_at(e->ckpt, i);
		uint64_t elements = 0;
		safetensors_elements(tensor->shape, tensor->dims, &elements);
		bytes += elements * safetensors_dtype_bits(e->options->dtype) / 8;
	}
	return bytes;
}

static int run(struct exporting *e, struct err *err)
{
	AUTO_FREE char *config = NULL;
	size_t size;
	struct err ignored;
	if (ckpt_place_open(&e->place, e->options->words.word[0], e->options->step, err) < 0
		|| open_parent(e, err) < 0)
		return -1;
	if (ckpt_open_folder(&e->place.dir, e->place.name, ckpt_step_of(e->place.name),
			CKPT_CMD_IO_TIMEOUT, &e->ckpt, err)
		< 0)
		return err_prefix(err, "%s/%s", e->place.dir.path, e->place.name);
	if (ckpt_read_config(e->ckpt, &config, &size, err) < 0)
		return -1;
	if (!config)
		return err_fail(err, EXIT_DATA, "export: the checkpoint has no config.json");
	progress_begin(&e->progress, "export", bytes_to_write(e), false);
	int result = write_folder(e, config, err);
	progress_end(&e->progress);
	if (result == 0)
		result = commit(e, err);
	if (result < 0)
		remove_folder(e->parent.fd, e->temporary, &ignored);
	return result;
}

static int print_result(const struct exporting *e)
{
	char size[16];
	const char *dtype = e->options->dtype == SAFETENSORS_F32 ? "fp32" : "bf16";
	const char *out = e->options->words.word[1];
	if (e->options->words.json)
		return ckpt_cmd_print_json(json_pack("{s:s, s:s, s:s, s:s, s:I, s:I}", "directory",
			e->place.dir.path, "folder", e->place.name, "out", out, "dtype", dtype, "files",
			(json_int_t)e->files, "bytes", (json_int_t)e->bytes));
	printf("%s: %s of weights in %s, %zu file%s, from %s/%s\n", out,
		progress_bytes((double)e->bytes, size), dtype, e->files, e->files == 1 ? "" : "s",
		e->place.dir.path, e->place.name);
	const int status = ckpt_cmd_flush();
	progress_next("muster-generate %s", out);
	return status;
}

int ckpt_cmd_export(int argc, char **argv)
{
	struct options options = {
		.words = { .least = 2, .most = 2, .what = "the checkpoint and the directory to make" },
		.dtype = SAFETENSORS_F32,
		.shard_size = SHARD_SIZE
	};
	struct exporting e = { .options = &options, .place.dir.fd = -1, .parent.fd = -1 };
	struct err err;
	argp_parse(&argp, argc, argv, 0, NULL, &options);
	catch_signals();
	int status = run(&e, &err) < 0 ? ckpt_cmd_fail(&err) : print_result(&e);
	ckpt_close(e.ckpt);
	ckpt_place_close(&e.place);
	ckpt_dir_close(&e.parent);
	if (caught && status != EXIT_OK) {
		signal(caught, SIG_DFL);
		raise(caught);
	}
	return status;
}
