/* SPDX-License-Identifier: Apache-2.0 */
/* memory_limit: what the cgroups of both versions and the machine leave, read from trees like the
 * kernel's. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include <sys/stat.h>

#include "checkpoint/format/memory_limit.h"
#include "tests/unit/files.h"

#define MB ((size_t)1 << 20)

static char root[100];

/* Begins a tree of its own with /proc/meminfo; `available` in MB. */
static void machine(size_t available)
{
	static int number;
	char text[100];
	snprintf(root, sizeof root, "tree-%d", number++);
	assert_int_equal(mkdir(files_path(root), 0755), 0);
	snprintf(text, sizeof text,
		"MemTotal: 99999999 kB\nMemAvailable:  %zu kB\nMemAvailableNot: 1 kB\n", available * 1024);
	char path[150];
	snprintf(path, sizeof path, "%s/proc", root);
	assert_int_equal(mkdir(files_path(path), 0755), 0);
	snprintf(path, sizeof path, "%s/proc/meminfo", root);
	files_write(path, text, strlen(text));
}

/* Writes `text` to a file of the tree, making its folders. */
static void put(const char *name, const char *text)
{
	char path[300];
	snprintf(path, sizeof path, "%s%s", root, name);
	for (char *slash = strchr(path + strlen(root) + 1, '/'); slash;
		 slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		mkdir(files_path(path), 0755);
		*slash = '/';
	}
	files_write(path, text, strlen(text));
}

static void put_number(const char *folder, const char *name, size_t megabytes)
{
	char path[200], text[40];
	snprintf(path, sizeof path, "%s/%s", folder, name);
	snprintf(text, sizeof text, "%zu\n", megabytes * MB);
	put(path, text);
}

static void left_is(size_t megabytes)
{
	assert_int_equal(memory_limit_available(files_path(root)), megabytes * MB);
}

static void without_cgroups_the_machine_counts(void **state)
{
	machine(500);
	left_is(500);
	assert_int_equal(memory_limit_available(files_path("no-such-tree")), 0);
}

static void the_tightest_cgroup_above_counts(void **state)
{
	machine(5000);
	put("/proc/self/cgroup", "0::/slurm/job_7/step_0\n");
	put("/proc/self/mountinfo",
		"20 1 0:1 / / rw - ext4 /dev/vda rw\n"
		"30 20 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n");
	put("/sys/fs/cgroup/slurm/job_7/step_0/memory.max", "max\n");
	put_number("/sys/fs/cgroup/slurm/job_7/step_0", "memory.current", 90);
	left_is(5000);
	put_number("/sys/fs/cgroup/slurm/job_7", "memory.max", 1000);
	put_number("/sys/fs/cgroup/slurm/job_7", "memory.current", 300);
	left_is(700);
	/* Cached files don't count: the kernel gives them up. */
	put("/sys/fs/cgroup/slurm/job_7/memory.stat",
		"anon 209715200\ninactive_file 52428800\nactive_file 10485760\n");
	left_is(760);
	put_number("/sys/fs/cgroup/slurm", "memory.max", 400);
	put_number("/sys/fs/cgroup/slurm", "memory.current", 350);
	left_is(50);
	put_number("/sys/fs/cgroup/slurm", "memory.current", 600);
	left_is(0);
}

static void a_container_sees_its_part_of_the_tree(void **state)
{
	machine(5000);
	put("/proc/self/cgroup", "0::/box/abc/inner\n");
	put("/proc/self/mountinfo", "30 20 0:26 /box/abc /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
	put_number("/sys/fs/cgroup", "memory.max", 100);
	put_number("/sys/fs/cgroup", "memory.current", 60);
	left_is(40);
	put_number("/sys/fs/cgroup/inner", "memory.max", 30);
	put_number("/sys/fs/cgroup/inner", "memory.current", 10);
	left_is(20);
}

static void version_1_counts_beside_version_2(void **state)
{
	machine(5000);
	put("/proc/self/cgroup", "9:name=systemd:/\n5:devices:/\n4:cpu,memory:/job\n0::/\n");
	put("/proc/self/mountinfo",
		"34 31 0:31 / /cg/cpuset rw - cgroup cgroup rw,cpuset\n"
		"35 31 0:32 / /cg/memory rw - cgroup cgroup rw,cpu,memory\n41 31 0:38 / /cg/unified rw - "
		"cgroup2 cgroup2 rw\n");
	put("/cg/memory/job/memory.limit_in_bytes", "9223372036854771712\n");
	put_number("/cg/memory/job", "memory.usage_in_bytes", 10);
	left_is(5000);
	put_number("/cg/memory/job", "memory.limit_in_bytes", 200);
	put("/cg/memory/job/memory.stat",
		"cache 1\ninactive_file 1\ntotal_inactive_file 1048576\ntotal_active_file 2097152\n");
	left_is(193);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_cgroups_the_machine_counts),
		cmocka_unit_test(the_tightest_cgroup_above_counts),
		cmocka_unit_test(a_container_sees_its_part_of_the_tree),
		cmocka_unit_test(version_1_counts_beside_version_2),
	};
	return cmocka_run_group_tests_name("memory_limit", tests, files_setup, files_teardown);
}
