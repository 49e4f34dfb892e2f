/* SPDX-License-Identifier: Apache-2.0 */
/* Whether Slurm can load our plugin. Slurm loads only a plugin that was built for its own release,
 * and silently skips an optional one that was not. So this reads the release from the file without
 * loading it. */
#include "config.h"

#include <elf.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checks/site.h"
#include "common/auto.h"
#include "common/io.h"

#define PLUGIN_NAME "spank_muster.so"
#define PLUGIN_LIMIT ((size_t)64 << 20)
#define INCLUDE_DEPTH 4

/* ---- the file ---- */

struct image {
	const char *data;
	size_t size;
};

/* `count` items of `each` bytes at `offset`; NULL if they are not all in the file, or not
 * aligned. */
static const void *part(const struct image *image, uint64_t offset, uint64_t count, size_t each)
{
	if (offset % (each < 8 ? each : 8) != 0 || offset > image->size
		|| count > (image->size - offset) / each)
		return NULL;
	return image->data + offset;
}

/* The bytes in the file that are loaded at an address; NULL if there are none. */
static const uint32_t *number_at(const struct image *image, const Elf64_Ehdr *header,
	uint64_t address)
{
	const Elf64_Phdr *loads = part(image, header->e_phoff, header->e_phnum, sizeof *loads);
	for (int i = 0; loads && i < header->e_phnum; i++)
		if (loads[i].p_type == PT_LOAD && address >= loads[i].p_vaddr
			&& address - loads[i].p_vaddr < loads[i].p_filesz)
			return part(image, loads[i].p_offset + (address - loads[i].p_vaddr), 1,
				sizeof(uint32_t));
	return NULL;
}

static bool is_called(const struct image *image, const Elf64_Shdr *names, uint32_t offset,
	const char *name)
{
	size_t length = strlen(name) + 1;
	const char *at =
		offset < names->sh_size ? part(image, names->sh_offset + offset, length, 1) : NULL;
	return at && memcmp(at, name, length) == 0;
}

uint32_t site_plugin_release(const char *data, size_t size)
{
	const struct image image = { data, size };
	const Elf64_Ehdr *header = part(&image, 0, 1, sizeof *header);
	if (!header || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0
		|| header->e_ident[EI_CLASS] != ELFCLASS64)
		return 0;
	const Elf64_Shdr *sections = part(&image, header->e_shoff, header->e_shnum, sizeof *sections);
	for (int i = 0; sections && i < header->e_shnum; i++) {
		if (sections[i].sh_type != SHT_DYNSYM || sections[i].sh_link >= header->e_shnum)
			continue;
		uint64_t count = sections[i].sh_size / sizeof(Elf64_Sym);
		const Elf64_Sym *symbols = part(&image, sections[i].sh_offset, count, sizeof *symbols);
		for (uint64_t s = 0; symbols && s < count; s++) {
			const uint32_t *number = NULL;
			uint32_t release = 0;
			if (symbols[s].st_size == sizeof release
				&& is_called(&image, &sections[sections[i].sh_link], symbols[s].st_name,
					"plugin_version"))
				number = number_at(&image, header, symbols[s].st_value);
			if (number) {
				memcpy(&release, number, sizeof release);
				return release;
			}
		}
	}
	return 0;
}

/* ---- plugstack.conf ---- */

static bool find_in_file(struct site *site, const char *path, const char *folder, int depth);

static bool find_included(struct site *site, const char *pattern, const char *folder, int depth)
{
	glob_t files = { 0 };
	bool fits = false;
	if (depth < INCLUDE_DEPTH && glob(pattern, 0, NULL, &files) == 0)
		for (size_t i = 0; i < files.gl_pathc && !fits; i++)
			fits = find_in_file(site, files.gl_pathv[i], folder, depth + 1);
	globfree(&files);
	return fits;
}

/* Reads the arguments as the plugin does. */
static int read_drain(const char *arguments)
{
	char word[100];
	int drain = HOOKS_DRAIN_DEFAULT, used;
	for (; sscanf(arguments, "%99s%n", word, &used) == 1; arguments += used) {
		if (strcmp(word, "ckptd=off") == 0)
			return -1;
		sscanf(word, "drain=%5d", &drain);
	}
	return drain;
}

/* Takes the plugin that a line names. Whether it is one for this Slurm. */
static bool take(struct site *site, const char *folder, const char *file, const char *arguments)
{
	AUTO_FREE char *data = NULL;
	size_t size;
	bool whole = strchr(file, '/') != NULL;
	snprintf(site->plugin, sizeof site->plugin, "%s%s%s", whole ? "" : folder, whole ? "" : "/",
		file);
	site->drain = read_drain(arguments);
	site->plugin_missing =
		io_read_file(AT_FDCWD, site->plugin, PLUGIN_LIMIT, &data, &size, NULL) < 0;
	site->plugin_release = site->plugin_missing ? 0 : site_plugin_release(data, size);
	return site->plugin_release && site->plugin_release >> 8 == site->release >> 8;
}

/* "optional PATH [ARGUMENT…]" or "include PATTERN" (spank(8)); a path without a slash is in Slurm's
 * plugin folder. While nodes are upgraded there is a line for each release, and Slurm skips those
 * for another: so does this. Whether there is one for this Slurm. */
static bool find_in_file(struct site *site, const char *path, const char *folder, int depth)
{
	char line[PATH_MAX + 200], word[16], file[PATH_MAX];
	bool fits = false;
	AUTO_FCLOSE FILE *conf = fopen(path, "re");
	while (conf && !fits && fgets(line, sizeof line, conf)) {
		int end = 0;
		if (sscanf(line, " %15s %4095s%n", word, file, &end) != 2 || word[0] == '#')
			continue;
		const char *slash = strrchr(file, '/');
		if (strcmp(word, "include") == 0)
			fits = find_included(site, file, folder, depth);
		else if (strcmp(slash ? slash + 1 : file, PLUGIN_NAME) == 0)
			fits = take(site, folder, file, line + end);
	}
	return fits;
}

void site_find_plugin(struct site *site, const char *conf, const char *folder)
{
	find_in_file(site, conf, folder, 0);
}
