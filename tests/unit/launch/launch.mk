# tests/unit/launch/: the unit tests of launch/.
if HAVE_CMOCKA
unit_tests += tests/unit/test_bootstrap
tests_unit_test_bootstrap_SOURCES = tests/unit/launch/test_bootstrap.c
tests_unit_test_bootstrap_LDADD = liblaunch.la libcommon.la $(CMOCKA_LIBS)
tests_unit_test_bootstrap_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=send -Wl,--wrap=recv
unit_tests += tests/unit/test_bootstrap_message
tests_unit_test_bootstrap_message_SOURCES = tests/unit/launch/test_bootstrap_message.c
tests_unit_test_bootstrap_message_LDADD = liblaunch.la libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_presence
tests_unit_test_presence_SOURCES = tests/unit/launch/test_presence.c
tests_unit_test_presence_LDADD = liblaunch.la libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_spot_source
tests_unit_test_spot_source_SOURCES = tests/unit/launch/test_spot_source.c
tests_unit_test_spot_source_LDADD = liblaunch.la libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_spot_watch
tests_unit_test_spot_watch_SOURCES = tests/unit/launch/test_spot_watch.c launch/spot_source.c \
	launch/spot_watch.c
tests_unit_test_spot_watch_CPPFLAGS = $(AM_CPPFLAGS) -DBINDIR='"fake-bin"'
tests_unit_test_spot_watch_LDADD = libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_step_word
tests_unit_test_step_word_SOURCES = tests/unit/launch/test_step_word.c $(partial_io)
tests_unit_test_step_word_LDADD = liblaunch.la libcommon.la $(CMOCKA_LIBS)
tests_unit_test_rank_links_SOURCES = tests/unit/launch/test_rank_links.c $(partial_io)
tests_unit_test_rank_links_LDADD = liblaunch.la libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_rdzv
tests_unit_test_rdzv_SOURCES = tests/unit/launch/test_rdzv.c
tests_unit_test_rdzv_LDADD = liblaunch.la libcommon.la $(CMOCKA_LIBS)
if HAVE_PMIX
tests_unit_test_rdzv_CFLAGS = $(AM_CFLAGS) $(PMIX_CFLAGS)
endif
unit_tests += tests/unit/test_requeue_program
tests_unit_test_requeue_program_SOURCES = tests/unit/launch/test_requeue_program.c \
	launch/job_query.c launch/requeue_ask.c launch/requeue_program.c
tests_unit_test_requeue_program_CPPFLAGS = $(AM_CPPFLAGS) -DLIBEXECDIR='"libexec"'
tests_unit_test_requeue_program_LDADD = libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_rdzv_pmi2
tests_unit_test_rdzv_pmi2_SOURCES = tests/unit/launch/test_rdzv_pmi2.c
tests_unit_test_rdzv_pmi2_LDADD = liblaunch.la libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_pmi2_wire
tests_unit_test_pmi2_wire_SOURCES = tests/unit/launch/test_pmi2_wire.c
tests_unit_test_pmi2_wire_LDADD = liblaunch.la libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_nccl_exchange
tests_unit_test_nccl_exchange_SOURCES = tests/unit/launch/test_nccl_exchange.c \
	tests/unit/launch/meeting_fixture.c tests/unit/launch/meeting_fixture.h
tests_unit_test_nccl_exchange_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS) $(NCCL_CPPFLAGS)
tests_unit_test_nccl_exchange_LDFLAGS = $(AM_LDFLAGS) $(NCCL_RPATH)
tests_unit_test_nccl_exchange_LDADD = liblaunch.la libcommon.la $(CMOCKA_LIBS)
if HAVE_NCCL
tests_unit_test_nccl_exchange_LDADD += libncclbootstrap.la
unit_tests += tests/unit/test_nccl_bootstrap
tests_unit_test_nccl_bootstrap_SOURCES = tests/unit/launch/test_nccl_bootstrap.c \
	tests/unit/launch/meeting_fixture.c tests/unit/launch/meeting_fixture.h
tests_unit_test_nccl_bootstrap_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS) $(NCCL_CPPFLAGS)
tests_unit_test_nccl_bootstrap_LDFLAGS = $(AM_LDFLAGS) $(NCCL_RPATH)
tests_unit_test_nccl_bootstrap_LDADD = libncclbootstrap.la liblaunch.la libcommon.la $(CMOCKA_LIBS)
endif
endif
# End of launch.mk
