/* SPDX-License-Identifier: Apache-2.0 */
/* Loads NCCL and the CUDA driver by their sonames. */
#include "launch/nccl_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#define NCCL_SONAME "libnccl.so.2"
#define DRIVER_SONAME "libcuda.so.1"

_Static_assert(sizeof(void *) == sizeof(void (*)(void)),
	"dlsym's result is copied to a function pointer");

#define CUDA_NOT_READY 600 /* CUDA_ERROR_NOT_READY */

/* The driver is asked, not the runtime: every node with a GPU has the driver, and a program need
 * not link the runtime for us. */
static int find_in_driver(const char *name, void *function, struct err *err)
{
	void *driver = dlopen(DRIVER_SONAME, RTLD_NOW | RTLD_LOCAL);
	void *symbol = driver ? dlsym(driver, name) : NULL;
	if (!symbol)
		return err_fail(err, EXIT_USAGE,
			"nccl: couldn't find a GPU: this node has no CUDA driver (%s): choose nodes with GPUs, "
			"for instance by --gpus-per-task=1",
			dlerror());
	memcpy(function, &symbol, sizeof symbol);
	return 0;
}

static int count_gpus(struct err *err)
{
	int (*init)(unsigned flags) = NULL, (*count)(int *) = NULL, gpus = 0, rc;
	if (find_in_driver("cuInit", &init, err) < 0
		|| find_in_driver("cuDeviceGetCount", &count, err) < 0)
		return -1;
	if ((rc = init(0)) != 0 || (rc = count(&gpus)) != 0)
		return err_fail(err, EXIT_USAGE,
			"nccl: couldn't find a GPU: the CUDA driver says error %d: is one given to this task, "
			"for instance by --gpus-per-task=1?",
			rc);
	return gpus;
}

static int stream_ended(void *stream, struct err *err)
{
	int (*query)(void *) = NULL;
	if (find_in_driver("cuStreamQuery", &query, err) < 0)
		return -1;
	int rc = query(stream);
	if (rc == 0 || rc == CUDA_NOT_READY)
		return rc == 0;
	return err_set(err, "nccl: couldn't wait for the GPU: the CUDA driver says error %d", rc);
}

static struct nccl_library library = { .count_gpus = count_gpus, .stream_ended = stream_ended };
static struct err load_error;
static void *loaded;

static void load(void)
{
	const struct {
		const char *name;
		void *pointer;
	} symbols[] = {
		{ "ncclGetVersion", &library.get_version },
		{ "ncclGetUniqueId", &library.get_unique_id },
		{ "ncclCommInitRankConfig", &library.init },
		{ "ncclCommGetAsyncError", &library.get_async_error },
		{ "ncclCommFinalize", &library.finalize },
		{ "ncclCommDestroy", &library.destroy },
		{ "ncclCommAbort", &library.abort },
		{ "ncclGroupStart", &library.group_start },
		{ "ncclGroupEnd", &library.group_end },
		{ "ncclSend", &library.send },
		{ "ncclRecv", &library.recv },
		{ "ncclAllGather", &library.all_gather },
		{ "ncclAllReduce", &library.all_reduce },
		{ "ncclGetErrorString", &library.get_error_string },
		{ "ncclGetLastError", &library.get_last_error },
	};
	loaded = dlopen(NCCL_SONAME, RTLD_NOW | RTLD_LOCAL);
	if (!loaded) {
		err_fail(&load_error, EXIT_USAGE,
			"nccl: couldn't load NCCL: %s: install it on this node, or put its folder into "
			"LD_LIBRARY_PATH",
			dlerror());
		return;
	}
	for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
		void *symbol = dlsym(loaded, symbols[i].name);
		memcpy(symbols[i].pointer, &symbol, sizeof symbol);
		if (!symbol) {
			err_fail(&load_error, EXIT_USAGE,
				"nccl: couldn't use the NCCL of this node: it has no %s: install 2.14.3 or newer",
				symbols[i].name);
			loaded = NULL;
			return;
		}
	}
}

const struct nccl_library *nccl_library_load(struct err *err)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, load);
	if (loaded)
		return &library;
	err_fail(err, load_error.status, "%s", load_error.text);
	return NULL;
}
