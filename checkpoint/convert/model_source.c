/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the provider that can read a path: a directory is Hugging Face's, a file is llm.c's. */
#include "checkpoint/convert/model_source.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "common/io.h"

struct model_source *model_source_open(const char *path, struct err *err)
{
	struct stat st;
	if (stat(path, &st) < 0) {
		err_fail(err, io_status_or(errno, EXIT_USAGE),
			"model: couldn't find %s: %s; give a Hugging Face directory or a model file of llm.c",
			path, strerror(errno));
		return NULL;
	}
	if (S_ISDIR(st.st_mode))
		return hf_model_open(path, err);
	if (S_ISREG(st.st_mode))
		return llmc_model_open(path, err);
	err_fail(err, EXIT_USAGE, "model: %s is neither a directory nor a file", path);
	return NULL;
}
