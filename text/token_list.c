/* SPDX-License-Identifier: Apache-2.0 */
/* Doubles its room when it is full. */
#include "config.h"

#include "text/token_list.h"

#include <stdlib.h>
#include <string.h>

int token_list_append(struct token_list *list, const int32_t *ids, size_t count, struct err *err)
{
	if (list->count + count > list->room) {
		const size_t room = 2 * (list->count + count) + 64;
		int32_t *grown = realloc(list->ids, room * sizeof *grown);
		if (!grown)
			return err_set(err, "tokens: out of memory");
		list->ids = grown;
		list->room = room;
	}
	if (count > 0)
		memcpy(list->ids + list->count, ids, count * sizeof *ids);
	list->count += count;
	return 0;
}
