/* SPDX-License-Identifier: Apache-2.0 */
/* Apart from screen.c, since <term.h> makes macros of words such as "lines". */
#include "config.h"

#include "top/terminal.h"

#include <curses.h>
#include <stdlib.h>
#include <term.h>

int terminal_check(int fd, struct err *err)
{
	const char *type = getenv("TERM");
	int known;
	if (setupterm(NULL, fd, &known) == OK && cursor_address) {
		del_curterm(cur_term);
		return 0;
	}
	return err_fail(err, EXIT_USAGE,
		"the terminal can't show it, for TERM is %s%s: set it to the terminal's type, such as "
		"TERM=xterm-256color, or give --once",
		type && type[0] ? "" : "not set", type ? type : "");
}
