# tests/unit/trainer/ops/: the unit tests of trainer/ops/.
if HAVE_CMOCKA
unit_tests += tests/unit/test_ops
tests_unit_test_ops_SOURCES = tests/unit/trainer/ops/test_ops.c \
	tests/unit/trainer/ops/ops_fixture.c tests/unit/trainer/ops/ops_fixture.h
tests_unit_test_ops_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
unit_tests += tests/unit/test_gpu
tests_unit_test_gpu_SOURCES = tests/unit/trainer/ops/test_gpu.c \
	tests/unit/launch/meeting_fixture.c tests/unit/launch/meeting_fixture.h
tests_unit_test_gpu_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
endif
# End of ops.mk
