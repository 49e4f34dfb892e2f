# checkpoint/command/: muster-ckpt, the command for people.
bin_PROGRAMS += muster-ckpt
muster_ckpt_SOURCES = \
	checkpoint/command/ckpt_cmd.c checkpoint/command/ckpt_cmd.h \
	checkpoint/command/ckpt_cmd_diff.c \
	checkpoint/command/ckpt_cmd_export.c \
	checkpoint/command/ckpt_cmd_history.c \
	checkpoint/command/ckpt_cmd_import.c \
	checkpoint/command/ckpt_cmd_list.c \
	checkpoint/command/ckpt_cmd_pin.c \
	checkpoint/command/ckpt_cmd_prune.c \
	checkpoint/command/ckpt_cmd_show.c \
	checkpoint/command/ckpt_cmd_verify.c \
	checkpoint/command/ckpt_words.c checkpoint/command/ckpt_words.h \
	checkpoint/command/muster_ckpt.c
muster_ckpt_LDADD = libckptcmd.la
# What the plugin starts for a user runs outside the limits of his job. A program that he can't read, he can't trace either: so none
# of his processes takes it over.
unreadable = $(bindir)/muster-ckptd
if HAVE_SLURM
unreadable += $(libexecdir)/muster-first-node $(libexecdir)/muster-requeue
endif
install-exec-hook:
	for file in $(unreadable); do chmod 711 "$(DESTDIR)$$file" || exit 1; done
# End of command.mk
