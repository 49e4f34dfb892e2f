/* SPDX-License-Identifier: Apache-2.0 */
/* Finds this rank's GPU through the CUDA driver alone, so that nothing is created on a device. */
#include "trainer/ops/gpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DRIVER_SONAME "libcuda.so.1"
#define REMEDY_NONE "ask for one by srun --gpus-per-task=1, or compute on the CPU by --device cpu"

/* The values of cuda.h (CUresult, CUdevice_attribute), so that a program built without CUDA can ask
 * the driver, too. */
enum { NO_DEVICE = 100, INVALID_DEVICE = 101, NOT_READY = 802, DRIVER_MISMATCH = 803 };
enum { PROCESSORS = 16, CAPABILITY_MAJOR = 75, CAPABILITY_MINOR = 76 };

_Static_assert(sizeof(void *) == sizeof(void (*)(void)),
	"dlsym's result is copied to a function pointer");

int gpu_driver_load(struct gpu_driver *driver, struct err *err)
{
	const struct {
		const char *name;
		void *pointer;
	} symbols[] = {
		{ "cuInit", &driver->init },
		{ "cuDriverGetVersion", &driver->version },
		{ "cuDeviceGetCount", &driver->count },
		{ "cuDeviceGet", &driver->get },
		{ "cuDeviceGetUuid_v2", &driver->uuid },
		{ "cuDeviceGetName", &driver->name },
		{ "cuDeviceTotalMem_v2", &driver->total },
		{ "cuDeviceGetAttribute", &driver->attribute },
		{ "cuGetErrorName", &driver->error_name },
	};
	void *library = dlopen(DRIVER_SONAME, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		err_fail(err, EXIT_USAGE,
			"device: couldn't find a GPU: this node has no CUDA driver (%s): " REMEDY_NONE,
			dlerror());
		return GPU_NONE;
	}
	for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
		void *symbol = dlsym(library, symbols[i].name);
		if (!symbol)
			return err_fail(err, EXIT_USAGE,
				"device: couldn't ask the CUDA driver: it has no %s, so it is older than CUDA "
				"11.4: choose nodes with a newer one, or --device cpu",
				symbols[i].name);
		memcpy(symbols[i].pointer, &symbol, sizeof symbol);
	}
	return 0;
}

/* Words the failure of a driver call, with what the user can do about it. */
static int driver_error(const struct gpu_driver *driver, int code, const char *call,
	struct err *err)
{
	const char *name = NULL,
			   *remedy = "is the driver of this node whole? srun --exclude leaves a node out";
	if (driver->error_name(code, &name) != 0 || !name)
		name = "an error without a name";
	if (code == NOT_READY)
		remedy = "its fabric manager does not run yet: srun --exclude leaves the node out";
	if (code == DRIVER_MISMATCH)
		remedy = "its driver was updated without a restart: srun --exclude leaves the node out";
	return err_set(err, "device: couldn't use the GPUs of this node: %s says %s (%d): %s", call,
		name, code, remedy);
}

static int none_visible(struct err *err)
{
	const char *list = getenv("CUDA_VISIBLE_DEVICES");
	err_fail(err, EXIT_USAGE,
		"device: couldn't find a GPU: none is visible to this task (CUDA_VISIBLE_DEVICES is "
		"%s%.200s): " REMEDY_NONE,
		list ? "" : "not set", list ? *list ? list : "empty" : "");
	return GPU_NONE;
}

static int check_driver(const struct gpu_driver *driver, int runtime, struct err *err)
{
	int version = 0, rc = driver->version(&version);
	if (rc != 0)
		return driver_error(driver, rc, "cuDriverGetVersion", err);
	if (version / 1000 < runtime / 1000)
		return err_fail(err, EXIT_USAGE,
			"device: couldn't use the GPU: the driver of this node supports CUDA %d.%d, and this "
			"program was built with %d.%d: choose nodes with a newer driver, build with "
			"--with-cuda of an older toolkit, or --device cpu",
			version / 1000, version % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
	return 0;
}

static int pick(const struct ident *ident, int visible, bool share, struct err *err)
{
	if (visible == 1)
		return 0;
	if (ident->local_rank < visible)
		return ident->local_rank;
	if (share)
		return ident->local_rank % visible;
	return err_fail(err, EXIT_USAGE,
		"device: couldn't choose a GPU: this task has local rank %d of %d on %s, and sees %d GPUs: "
		"start %d tasks a node, give each its own by --gpus-per-task=1, or let them share by "
		"--share-gpu",
		ident->local_rank, ident->local_world_size, ident->node, visible, visible);
}

static int describe(const struct gpu_driver *driver, struct gpu *gpu, struct err *err)
{
	int device = 0, major = 0, minor = 0, rc;
	size_t bytes = 0;
	if ((rc = driver->get(&device, gpu->index)) != 0)
		return driver_error(driver, rc, "cuDeviceGet", err);
	if ((rc = driver->uuid(gpu->uuid, device)) != 0)
		return driver_error(driver, rc, "cuDeviceGetUuid", err);
	if ((rc = driver->name(gpu->name, (int)sizeof gpu->name, device)) != 0)
		return driver_error(driver, rc, "cuDeviceGetName", err);
	if ((rc = driver->total(&bytes, device)) != 0)
		return driver_error(driver, rc, "cuDeviceTotalMem", err);
	if ((rc = driver->attribute(&major, CAPABILITY_MAJOR, device)) != 0
		|| (rc = driver->attribute(&minor, CAPABILITY_MINOR, device)) != 0
		|| (rc = driver->attribute(&gpu->processors, PROCESSORS, device)) != 0)
		return driver_error(driver, rc, "cuDeviceGetAttribute", err);
	gpu->name[sizeof gpu->name - 1] = '\0';
	gpu->capability = 10 * major + minor;
	gpu->bytes = bytes;
	return 0;
}

int gpu_choose(const struct gpu_driver *driver, const struct ident *ident, int runtime, bool share,
	struct gpu *gpu, struct err *err)
{
	int rc = driver->init(0);
	*gpu = (struct gpu) { .index = -1 };
	if (rc == NO_DEVICE || rc == INVALID_DEVICE)
		return none_visible(err);
	if (rc != 0)
		return driver_error(driver, rc, "cuInit", err);
	if ((rc = driver->count(&gpu->visible)) != 0 && rc != NO_DEVICE)
		return driver_error(driver, rc, "cuDeviceGetCount", err);
	if (rc == NO_DEVICE || gpu->visible < 1)
		return none_visible(err);
	if (check_driver(driver, runtime, err) < 0)
		return -1;
	if ((gpu->index = pick(ident, gpu->visible, share, err)) < 0 || describe(driver, gpu, err) < 0)
		return -1;
	if (gpu->capability < GPU_OLDEST)
		return err_fail(err, EXIT_USAGE,
			"device: couldn't use the GPU: %s has compute capability %d.%d, and at least %d.%d is "
			"needed: choose nodes with newer GPUs (sbatch --constraint, or "
			"--gpus-per-task=TYPE:1), or --device cpu",
			gpu->name, gpu->capability / 10, gpu->capability % 10, GPU_OLDEST / 10,
			GPU_OLDEST % 10);
	return 0;
}

char *gpu_uuid_text(const unsigned char *uuid, char out[GPU_UUID_TEXT])
{
	int n = snprintf(out, GPU_UUID_TEXT, "GPU-");
	for (int i = 0; i < GPU_UUID_BYTES; i++)
		n += snprintf(out + n, (size_t)(GPU_UUID_TEXT - n), "%s%02x",
			i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
	return out;
}
