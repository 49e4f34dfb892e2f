# plugin/: the SPANK plugin.

if HAVE_SLURM
# The plugin is self-contained, so that slurmstepd, which runs as root, loads no further libraries.
plugindir = $(libdir)/slurm
plugin_LTLIBRARIES = spank_muster.la
noinst_LTLIBRARIES += libplugin.la
libplugin_la_SOURCES = $(launch_checks) checks/site.c checks/site.h checks/site_mpi.c \
	common/alone.c common/alone.h \
	common/clock.c common/clock.h \
	common/err.c common/err.h \
	common/hostlist.c common/hostlist.h \
	common/ident.c common/ident.h \
	common/io.c common/io.h \
	common/last_words.c common/last_words.h \
	common/descriptors.c common/descriptors.h common/listen.c common/listen.h \
	common/number.c common/number.h \
	common/process.c common/process.h \
	common/run_as_user.c common/run_as_user.h \
	common/siphash.c common/siphash.h \
	plugin/end_channel.c plugin/end_channel.h \
	plugin/first_end.c plugin/first_end.h \
	plugin/job_folder.c plugin/job_folder.h \
	slurm/later.h \
	plugin/job_service.c plugin/job_service.h \
	plugin/left_stepd.c plugin/left_stepd.h \
	plugin/preflight.c plugin/preflight.h \
	plugin/rank_env.c plugin/rank_env.h \
	plugin/skip_step.c plugin/skip_step.h \
	plugin/spank_alloc.c plugin/spank_contexts.h \
	plugin/spank_args.c plugin/spank_args.h \
	plugin/spank_dispatch.c \
	plugin/spank_end.c plugin/spank_end.h \
	plugin/spank_job.c \
	plugin/spank_requeue.c plugin/spank_requeue.h \
	plugin/spank_slurmd.c plugin/spank_slurmd.h slurm/slurm_compat.h \
	plugin/spank_srun.c \
	plugin/spank_stepd.c \
	plugin/spank_task.c plugin/spank_task.h \
	plugin/task_end.c plugin/task_end.h \
	plugin/wish.c plugin/wish.h
libplugin_la_CPPFLAGS = $(AM_CPPFLAGS) $(SLURM_CPPFLAGS) -DLIBEXECDIR='"$(libexecdir)"' \
	-DBINDIR='"$(bindir)"'
# SPANK_PLUGIN's variables don't set their visibility, so all is visible here; the version script
# hides the rest.
libplugin_la_CFLAGS = $(AM_CFLAGS) -fvisibility=default
spank_muster_la_SOURCES =
spank_muster_la_LIBADD = libplugin.la
spank_muster_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version \
	-Wl,--version-script=$(srcdir)/plugin/spank_muster.lds
spank_muster_la_DEPENDENCIES = libplugin.la plugin/spank_muster.lds
endif
EXTRA_DIST += plugin/spank_muster.lds
# End of plugin.mk
