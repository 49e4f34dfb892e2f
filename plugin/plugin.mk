# plugin/: the SPANK plugin, the launch half of libmuster (identity, rendezvous), muster-requeue, muster-rdzv.

# The launch half: identity and rendezvous. Whoever links it links libcommon.la too.
noinst_LTLIBRARIES += liblaunch.la
liblaunch_la_SOURCES = \
	plugin/ident_discover.c \
	plugin/nccl_exchange.c plugin/nccl_exchange.h \
	plugin/requeue_ask.c plugin/requeue_ask.h \
	plugin/rdzv.c plugin/rdzv.h plugin/rdzv_provider.h \
	plugin/rdzv_file.c \
	plugin/rdzv_single.c
liblaunch_la_CPPFLAGS = $(AM_CPPFLAGS) -DLIBEXECDIR='"$(libexecdir)"'
liblaunch_la_CFLAGS = $(AM_CFLAGS) $(PMIX_CFLAGS)
liblaunch_la_LIBADD = $(PMIX_LIBS)
if HAVE_PMIX
liblaunch_la_SOURCES += plugin/rdzv_pmix.c
endif

# The NCCL communicator over it, for those who make one. NCCL itself is loaded when it is needed.
if HAVE_NCCL
noinst_LTLIBRARIES += libncclbootstrap.la
libncclbootstrap_la_SOURCES = \
	plugin/nccl_bootstrap.c plugin/nccl_bootstrap.h \
	plugin/nccl_library.c plugin/nccl_library.h
libncclbootstrap_la_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS) $(NCCL_CPPFLAGS)
endif

bin_PROGRAMS += muster-rdzv
muster_rdzv_SOURCES = plugin/muster_rdzv.c
muster_rdzv_LDADD = liblaunch.la libcommon.la

# What a launch can have wrong: facts, the table of checks, the judge. The plugin takes the same sources.
launch_checks = \
	plugin/check.c plugin/check.h plugin/check_node.c plugin/check_site.c plugin/check_task.c \
	plugin/facts.c plugin/facts.h \
	plugin/facts_probe.c plugin/facts_probe.h \
	plugin/findings.c \
	plugin/listen.c plugin/listen.h
noinst_LTLIBRARIES += libdoctor.la
libdoctor_la_SOURCES = $(launch_checks) \
	plugin/doctor_dir.c plugin/doctor_dir.h \
	plugin/doctor_meet.c plugin/doctor_meet.h \
	plugin/doctor_print.c plugin/doctor_print.h \
	plugin/doctor_way.c plugin/doctor_way.h \
	plugin/facts_json.c plugin/facts_json.h \
	plugin/facts_versions.c \
	plugin/run_as_user.c plugin/run_as_user.h \
	plugin/site.c plugin/site.h plugin/site_plugin.c plugin/site_saves.c
# Objects of its own: tests build some of these files by themselves.
libdoctor_la_CPPFLAGS = $(AM_CPPFLAGS)
libdoctor_la_LIBADD = liblaunch.la libcommon.la
bin_PROGRAMS += muster-doctor
muster_doctor_SOURCES = plugin/muster_doctor.c
muster_doctor_LDADD = libdoctor.la liblaunch.la libcommon.la

if HAVE_SLURM
# The plugin holds all it needs: slurmstepd, running as root, is not made to load further libraries.
plugindir = $(libdir)/slurm
plugin_LTLIBRARIES = spank_muster.la
spank_muster_la_SOURCES = $(launch_checks) \
	common/clock.c common/clock.h \
	common/err.c common/err.h \
	common/hostlist.c common/hostlist.h \
	common/ident.c common/ident.h \
	common/last_words.c common/last_words.h \
	common/number.c common/number.h \
	plugin/end_channel.c plugin/end_channel.h \
	plugin/first_end.c plugin/first_end.h \
	plugin/job_folder.c plugin/job_folder.h \
	plugin/job_service.c plugin/job_service.h \
	plugin/preflight.c plugin/preflight.h \
	plugin/process.c plugin/process.h \
	plugin/rank_env.c plugin/rank_env.h \
	plugin/run_as_user.c plugin/run_as_user.h \
	plugin/site.c plugin/site.h plugin/site_pmix.c \
	plugin/spank_alloc.c plugin/spank_contexts.h \
	plugin/spank_args.c plugin/spank_args.h \
	plugin/spank_dispatch.c \
	plugin/spank_end.c plugin/spank_end.h \
	plugin/spank_job.c \
	plugin/spank_srun.c \
	plugin/spank_stepd.c \
	plugin/task_end.c plugin/task_end.h
spank_muster_la_CPPFLAGS = $(AM_CPPFLAGS) $(SLURM_CPPFLAGS) -DLIBEXECDIR='"$(libexecdir)"' \
	-DBINDIR='"$(bindir)"'
# SPANK_PLUGIN's variables have no visibility of their own; the version script is what hides the rest.
spank_muster_la_CFLAGS = $(AM_CFLAGS) -fvisibility=default
spank_muster_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -Wl,--version-script=$(srcdir)/plugin/spank_muster.lds
spank_muster_la_DEPENDENCIES = plugin/spank_muster.lds

libexec_PROGRAMS = muster-first-node muster-requeue
muster_requeue_SOURCES = plugin/muster_requeue.c plugin/requeue.c plugin/requeue.h plugin/slurm_compat.h
muster_requeue_CPPFLAGS = $(AM_CPPFLAGS) $(SLURM_CPPFLAGS)
muster_requeue_LDFLAGS = $(AM_LDFLAGS) $(SLURM_LDFLAGS)
muster_requeue_LDADD = libcommon.la $(SLURM_LIBS)

muster_first_node_SOURCES = plugin/muster_first_node.c plugin/step_layout.c plugin/step_layout.h
muster_first_node_CPPFLAGS = $(AM_CPPFLAGS) $(SLURM_CPPFLAGS)
muster_first_node_LDFLAGS = $(AM_LDFLAGS) $(SLURM_LDFLAGS)
muster_first_node_LDADD = libcommon.la $(SLURM_LIBS)
endif
EXTRA_DIST += plugin/spank_muster.lds
# End of plugin.mk
