# checkpoint/: the checkpoint format, writer and reader.
noinst_LTLIBRARIES += libcheckpoint.la
libcheckpoint_la_SOURCES = \
	checkpoint/attempts.c checkpoint/attempts.h \
	checkpoint/cadence.c checkpoint/cadence.h \
	checkpoint/ckpt.c checkpoint/ckpt.h checkpoint/ckpt_private.h checkpoint/ckpt_read.c \
	checkpoint/ckpt_dir.c checkpoint/ckpt_dir.h \
	checkpoint/ckpt_commit.c \
	checkpoint/ckpt_files.c checkpoint/ckpt_files.h \
	checkpoint/ckpt_finish.c \
	checkpoint/ckpt_part.c checkpoint/ckpt_part.h \
	checkpoint/ckpt_save.c checkpoint/ckpt_save.h \
	checkpoint/manifest.c checkpoint/manifest.h \
	checkpoint/memory_limit.c checkpoint/memory_limit.h \
	checkpoint/owner.c checkpoint/owner.h \
	checkpoint/pin.c checkpoint/pin.h \
	checkpoint/record.c checkpoint/record.h \
	checkpoint/removable.c checkpoint/removable.h \
	checkpoint/retention.c checkpoint/retention.h \
	checkpoint/narrow.c checkpoint/narrow.h \
	checkpoint/safetensors.c checkpoint/safetensors.h \
	checkpoint/saving.c checkpoint/saving.h \
	checkpoint/shard.c checkpoint/shard.h checkpoint/shard_scan.c \
	checkpoint/shard_plan.c checkpoint/shard_plan.h \
	checkpoint/shard_write.c checkpoint/shard_write.h \
	checkpoint/snapshot_memory.c checkpoint/snapshot_memory.h \
	checkpoint/snapshot.h
libcheckpoint_la_LIBADD = libcommon.la $(JANSSON_LIBS) -lm

# The checkpoint service: what its process and its clients share. Whoever links it links libcheckpoint.la too.
noinst_LTLIBRARIES += libckptd.la
libckptd_la_SOURCES = \
	checkpoint/ckptd_alive.c checkpoint/ckptd_alive.h \
	checkpoint/ckptd_already.c checkpoint/ckptd_already.h \
	checkpoint/ckptd_attach.c checkpoint/ckptd_attach.h \
	checkpoint/ckptd_client.c checkpoint/ckptd_client.h \
	checkpoint/ckptd_conn.c checkpoint/ckptd_conn.h \
	checkpoint/ckptd_contact.c checkpoint/ckptd_contact.h \
	checkpoint/ckptd_control.c checkpoint/ckptd_control.h \
	checkpoint/ckptd_entries.c checkpoint/ckptd_entries.h \
	checkpoint/ckptd_fields.c checkpoint/ckptd_fields.h \
	checkpoint/ckptd_hear.c checkpoint/ckptd_hear.h \
	checkpoint/ckptd_news.c checkpoint/ckptd_news.h \
	checkpoint/ckptd_parts.c checkpoint/ckptd_parts.h \
	checkpoint/ckptd_polls.h \
	checkpoint/ckptd_process.c checkpoint/ckptd_process.h \
	checkpoint/ckptd_proto.c checkpoint/ckptd_proto.h \
	checkpoint/ckptd_report.c checkpoint/ckptd_report.h \
	checkpoint/ckptd_server.c checkpoint/ckptd_server.h \
	checkpoint/ckptd_session.c checkpoint/ckptd_session.h \
	checkpoint/ckptd_socket.c checkpoint/ckptd_socket.h \
	checkpoint/ckptd_start.c checkpoint/ckptd_start.h \
	checkpoint/ckptd_tcp.c checkpoint/ckptd_tcp.h \
	checkpoint/ckptd_worker.c checkpoint/ckptd_worker.h checkpoint/ckptd_worker_private.h \
	checkpoint/ckptd_worker_decide.c \
	checkpoint/ckptd_worker_save.c
libckptd_la_CPPFLAGS = $(AM_CPPFLAGS) -DBINDIR='"$(bindir)"'
libckptd_la_LIBADD = libcheckpoint.la

bin_PROGRAMS += muster-ckptd
muster_ckptd_SOURCES = checkpoint/muster_ckptd.c
muster_ckptd_LDADD = libckptd.la libcheckpoint.la libcommon.la

# muster-ckpt, the command for people
libcheckpoint_la_SOURCES += checkpoint/gpt2.c checkpoint/gpt2.h
bin_PROGRAMS += muster-ckpt
noinst_LTLIBRARIES += libckptcmd.la
libckptcmd_la_SOURCES = \
	checkpoint/ckpt_check.c checkpoint/ckpt_check.h \
	checkpoint/ckpt_diff.c checkpoint/ckpt_diff.h \
	checkpoint/hf_export.c checkpoint/hf_export.h \
	checkpoint/hf_model.c \
	checkpoint/history.c checkpoint/history.h \
	checkpoint/llmc_model.c \
	checkpoint/model_source.c checkpoint/model_source.h \
	checkpoint/progress.c checkpoint/progress.h
libckptcmd_la_LIBADD = libcheckpoint.la
muster_ckpt_SOURCES = checkpoint/muster_ckpt.c checkpoint/ckpt_cmd.c checkpoint/ckpt_cmd.h \
	checkpoint/ckpt_words.c checkpoint/ckpt_words.h \
	checkpoint/ckpt_cmd_diff.c checkpoint/ckpt_cmd_export.c checkpoint/ckpt_cmd_history.c checkpoint/ckpt_cmd_import.c \
	checkpoint/ckpt_cmd_list.c checkpoint/ckpt_cmd_pin.c checkpoint/ckpt_cmd_prune.c checkpoint/ckpt_cmd_show.c \
	checkpoint/ckpt_cmd_verify.c
muster_ckpt_LDADD = libckptcmd.la
# What the plugin starts for a user runs outside the limits of his job. A program that he can't read, he can't trace either: so none
# of his processes takes it over.
unreadable = $(bindir)/muster-ckptd
if HAVE_SLURM
unreadable += $(libexecdir)/muster-first-node $(libexecdir)/muster-requeue
endif
install-exec-hook:
	for file in $(unreadable); do chmod 711 "$(DESTDIR)$$file" || exit 1; done
# End of checkpoint.mk
