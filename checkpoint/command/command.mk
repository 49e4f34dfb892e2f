# checkpoint/command/: muster-ckpt, the command that inspects and manages checkpoints.
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
# The plugin starts these programs for a user outside the limits of the user's job. A user can't
# trace a program that the user can't read, so these are installed unreadable: no process of the
# user can take them over.
unreadable = $(bindir)/muster-ckptd
if HAVE_SLURM
unreadable += $(libexecdir)/muster-first-node $(libexecdir)/muster-requeue
endif
install-exec-hook:
	for file in $(unreadable); do chmod 711 "$(DESTDIR)$$file" || exit 1; done
# End of command.mk
