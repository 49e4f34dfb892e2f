/* SPDX-License-Identifier: Apache-2.0 */
/* The smallest PMIx program that needs every rank: each publishes a value, and reads that of its
 * right neighbour. */
#include <pmix.h>
#include <stdint.h>
#include <stdio.h>

/* Ends the program unless a PMIx call succeeded. */
static int failed(pmix_status_t status, const char *what)
{
	if (status != PMIX_SUCCESS)
		fprintf(stderr, "ring: couldn't %s: %s\n", what, PMIx_Error_string(status));
	return status != PMIX_SUCCESS;
}

/* The world size, or 0. */
static uint32_t world_size(const pmix_proc_t *self)
{
	pmix_proc_t everyone = *self;
	pmix_value_t *value = NULL;
	uint32_t size;

	everyone.rank = PMIX_RANK_WILDCARD;
	if (failed(PMIx_Get(&everyone, PMIX_JOB_SIZE, NULL, 0, &value), "get the job's size"))
		return 0;
	size = value->data.uint32;
	PMIX_VALUE_RELEASE(value);
	return size;
}

int main(void)
{
	pmix_proc_t self, right;
	pmix_value_t mine = { .type = PMIX_UINT32 }, *theirs = NULL;
	pmix_info_t collect;
	bool yes = true;
	uint32_t size;

	if (failed(PMIx_Init(&self, NULL, 0), "join") || (size = world_size(&self)) == 0)
		return 1;
	mine.data.uint32 = 100 + self.rank;
	PMIX_INFO_LOAD(&collect, PMIX_COLLECT_DATA, &yes, PMIX_BOOL);
	right = self;
	right.rank = (self.rank + 1) % size;
	if (failed(PMIx_Put(PMIX_GLOBAL, "ring", &mine), "put") || failed(PMIx_Commit(), "commit")
		|| failed(PMIx_Fence(NULL, 0, &collect, 1), "meet the others")
		|| failed(PMIx_Get(&right, "ring", NULL, 0, &theirs), "read the neighbour's value"))
		return 1;
	printf("rank %u of %u read %u\n", self.rank, size, theirs->data.uint32);
	PMIX_VALUE_RELEASE(theirs);
	return PMIx_Finalize(NULL, 0) == PMIX_SUCCESS ? 0 : 1;
}
