# tests/unit/slurm/: the unit tests of slurm/.
if HAVE_CMOCKA
unit_tests += tests/unit/test_hooks
tests_unit_test_hooks_SOURCES = tests/unit/slurm/test_hooks.c
tests_unit_test_hooks_LDADD = libdoctor.la $(CMOCKA_LIBS)
if HAVE_SLURM
unit_tests += tests/unit/test_requeue
tests_unit_test_requeue_SOURCES = tests/unit/slurm/test_requeue.c slurm/requeue.c
tests_unit_test_requeue_CPPFLAGS = $(AM_CPPFLAGS) $(SLURM_CPPFLAGS)
tests_unit_test_requeue_LDFLAGS = $(AM_LDFLAGS) $(SLURM_LDFLAGS)
tests_unit_test_requeue_LDADD = libcommon.la $(SLURM_LIBS) $(CMOCKA_LIBS)
unit_tests += tests/unit/test_leave_out
tests_unit_test_leave_out_SOURCES = tests/unit/slurm/test_leave_out.c slurm/leave_out.c \
	slurm/requeue.c
tests_unit_test_leave_out_CPPFLAGS = $(AM_CPPFLAGS) $(SLURM_CPPFLAGS)
tests_unit_test_leave_out_LDFLAGS = $(AM_LDFLAGS) $(SLURM_LDFLAGS)
tests_unit_test_leave_out_LDADD = libcommon.la $(SLURM_LIBS) $(CMOCKA_LIBS)
endif
endif
# End of slurm.mk
