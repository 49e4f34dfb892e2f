/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the build ID from the program's ELF notes in memory. */
#include "config.h"

#include "common/build_id.h"

#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

struct build_id {
	char hex[65];
};

/* Searches the notes of one segment: name size, description size, type, then both padded to 4 bytes
 * (ELF specification). */
static int find_note(const char *note, const char *end, struct build_id *id)
{
	while (note + sizeof(ElfW(Nhdr)) <= end) {
		const ElfW(Nhdr) *header = (const void *)note;
		const char *name = note + sizeof *header;
		const unsigned char *bytes = (const unsigned char *)name + ((header->n_namesz + 3u) & ~3u);
		if (header->n_type == NT_GNU_BUILD_ID && header->n_namesz == 4
			&& memcmp(name, "GNU", 4) == 0) {
			for (unsigned i = 0; i < header->n_descsz && i < 32; i++)
				snprintf(id->hex + 2 * i, 3, "%02x", bytes[i]);
			return 1;
		}
		note = (const char *)bytes + ((header->n_descsz + 3u) & ~3u);
	}
	return 0;
}

/* dl_iterate_phdr() visits the program itself first. */
static int look_at_program(struct dl_phdr_info *info, size_t size, void *arg)
{
	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *header = &info->dlpi_phdr[i];
		const char *start = (const char *)(info->dlpi_addr + header->p_vaddr);
		if (header->p_type == PT_NOTE && find_note(start, start + header->p_memsz, arg))
			break;
	}
	return 1;
}

const char *build_id(void)
{
	static struct build_id id;
	if (!id.hex[0]) {
		snprintf(id.hex, sizeof id.hex, "none");
		dl_iterate_phdr(look_at_program, &id);
	}
	return id.hex;
}
