# tests/unit/lib/: the unit tests of lib/.
if HAVE_CMOCKA
unit_tests += tests/unit/test_muster
alone_fixture = tests/unit/lib/alone_fixture.c tests/unit/lib/alone_fixture.h
tests_unit_test_muster_SOURCES = tests/unit/lib/test_muster.c tests/unit/lib/blocked_save.h \
	$(alone_fixture)
tests_unit_test_muster_LDADD = libmuster.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_collective
ranks_fixture = tests/unit/lib/ranks_fixture.c tests/unit/lib/ranks_fixture.h
tests_unit_test_collective_SOURCES = tests/unit/lib/test_collective.c $(ranks_fixture)
tests_unit_test_collective_LDADD = libmuster.la libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_resume
tests_unit_test_resume_SOURCES = tests/unit/lib/test_resume.c $(ranks_fixture)
unit_tests += tests/unit/test_word
tests_unit_test_word_SOURCES = tests/unit/lib/test_word.c $(ranks_fixture)
tests_unit_test_word_LDADD = libmuster.la libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_phase
tests_unit_test_phase_SOURCES = tests/unit/lib/test_phase.c $(ranks_fixture)
tests_unit_test_phase_LDADD = libmuster.la libtelemetry.la libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_worker
tests_unit_test_worker_SOURCES = tests/unit/lib/test_worker.c
tests_unit_test_worker_LDADD = libmuster.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_state
tests_unit_test_state_SOURCES = tests/unit/lib/test_state.c $(alone_fixture)
tests_unit_test_state_LDADD = libmuster.la $(CMOCKA_LIBS)
tests_unit_test_resume_LDADD = libmuster.la libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_writers
tests_unit_test_writers_SOURCES = tests/unit/lib/test_writers.c $(ranks_fixture)
tests_unit_test_writers_LDADD = libmuster.la libcommon.la $(CMOCKA_LIBS)
tests_unit_test_end_SOURCES = tests/unit/lib/test_end.c tests/unit/lib/blocked_save.h \
	$(ranks_fixture)
tests_unit_test_end_LDADD = libmuster.la libcommon.la $(CMOCKA_LIBS)
endif
# End of lib.mk
