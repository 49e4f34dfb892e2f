/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the first error of what is queued on the GPU. */
#include "trainer/cuda/host/cuda.h"

#include <cuda_runtime_api.h>

bool cuda_note(struct device *device, int rc, const struct err *err)
{
	struct cuda *cuda = cuda_of(device);
	if (rc < 0 && cuda->capturing && pthread_equal(cuda->capturer, pthread_self())) {
		cuda->spoilt = true;
		return false;
	}
	pthread_mutex_lock(&cuda->lock);
	if (rc < 0 && !cuda->failed) {
		cuda->failed = true;
		cuda->err = *err;
	}
	bool well = !cuda->failed;
	pthread_mutex_unlock(&cuda->lock);
	return well;
}

bool cuda_keep(struct device *device, int code, const char *call, const char *file, int line)
{
	struct err err;
	return code == 0 || cuda_note(device, cuda_check(code, call, file, line, &err), &err);
}

/* The runtime keeps a current device for each thread, and the communicator's thread queues work,
 * too. */
bool cuda_begin(struct device *device)
{
	static __thread int current = -1;
	struct err err = { 0 };
	if (!cuda_note(device, 0, &err))
		return false;
	if (current == cuda_of(device)->number)
		return true;
	current = cuda_of(device)->number;
	return cuda_keep(device, cudaSetDevice(current), "cudaSetDevice(current)", __FILE__, __LINE__);
}

int cuda_first_error(struct device *device, struct err *err)
{
	struct cuda *cuda = cuda_of(device);
	pthread_mutex_lock(&cuda->lock);
	bool failed = cuda->failed;
	if (failed)
		*err = cuda->err;
	pthread_mutex_unlock(&cuda->lock);
	return failed ? -1 : 0;
}
