# launch/: the launch half of libmuster (identity, rendezvous, NCCL bootstrap), and muster-rdzv.

# Programs that link this library must link libcommon.la too.
noinst_LTLIBRARIES += liblaunch.la
liblaunch_la_SOURCES = \
	launch/ident_discover.c \
	launch/bootstrap.c launch/bootstrap.h launch/bootstrap_private.h \
	launch/bootstrap_links.c \
	launch/bootstrap_message.c launch/bootstrap_message.h \
	launch/job_query.c launch/job_query.h \
	launch/nccl_exchange.c launch/nccl_exchange.h \
	launch/pmi2_wire.c launch/pmi2_wire.h \
	launch/rank_address.c launch/rank_address.h \
	launch/rank_links.c launch/rank_links.h \
	launch/rank_status.c launch/rank_status.h \
	launch/requeue_ask.c launch/requeue_ask.h \
	launch/requeue_program.c launch/requeue_program.h \
	launch/rdzv.c launch/rdzv.h launch/rdzv_provider.h \
	launch/rdzv_file.c \
	launch/rdzv_pmi2.c \
	launch/rdzv_single.c \
	launch/presence.c launch/presence.h \
	launch/run_key.c launch/run_key.h \
	launch/spot_source.c launch/spot_source.h \
	launch/spot_watch.c launch/spot_watch.h \
	launch/step_word.c launch/step_word.h \
	launch/step_word_data.c launch/step_word_data.h \
	launch/step_word_frame.c launch/step_word_frame.h \
	launch/step_word_peer.c launch/step_word_peer.h
liblaunch_la_CPPFLAGS = $(AM_CPPFLAGS) -DBINDIR='"$(bindir)"' -DLIBEXECDIR='"$(libexecdir)"' \
	-DPMIX_LIBDIR='"$(PMIX_LIBDIR)"'
liblaunch_la_CFLAGS = $(AM_CFLAGS) $(PMIX_CFLAGS)
if HAVE_PMIX
liblaunch_la_SOURCES += launch/rdzv_pmix.c launch/pmix_client.c launch/pmix_client.h \
	launch/pmix_library.c launch/pmix_library.h
endif

# NCCL communicators, for programs that make one. NCCL itself is loaded on first use.
if HAVE_NCCL
noinst_LTLIBRARIES += libncclbootstrap.la
libncclbootstrap_la_SOURCES = \
	launch/nccl_bootstrap.c launch/nccl_bootstrap.h \
	launch/nccl_library.c launch/nccl_library.h
libncclbootstrap_la_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS) $(NCCL_CPPFLAGS)
endif

bin_PROGRAMS += muster-rdzv
muster_rdzv_SOURCES = launch/muster_rdzv.c
muster_rdzv_LDADD = liblaunch.la libcommon.la
# End of launch.mk
