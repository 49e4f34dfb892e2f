# tests/unit/trainer/cpu/: the unit tests of trainer/cpu/.
if HAVE_CMOCKA
unit_tests += tests/unit/test_ops_fast
tests_unit_test_ops_fast_SOURCES = tests/unit/trainer/cpu/test_ops_fast.c \
	tests/unit/trainer/ops/ops_fixture.c tests/unit/trainer/ops/ops_fixture.h
tests_unit_test_ops_fast_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
unit_tests += tests/unit/test_ops_isa
tests_unit_test_ops_isa_SOURCES = tests/unit/trainer/cpu/test_ops_isa.c \
	tests/unit/trainer/ops/ops_fixture.c tests/unit/trainer/ops/ops_fixture.h
tests_unit_test_ops_isa_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
unit_tests += tests/unit/test_ops_threads
tests_unit_test_ops_threads_SOURCES = tests/unit/trainer/cpu/test_ops_threads.c \
	tests/unit/trainer/ops/ops_fixture.c tests/unit/trainer/ops/ops_fixture.h
tests_unit_test_ops_threads_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
endif
# End of cpu.mk
