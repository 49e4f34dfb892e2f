# tests/unit/bench/: the unit tests of bench/.
if HAVE_CMOCKA
unit_tests += tests/unit/test_ops_trace
tests_unit_test_ops_trace_SOURCES = tests/unit/bench/test_ops_trace.c bench/ops_trace.c \
	bench/ops_trace.h tests/unit/trainer/model/model_fixture.c \
	tests/unit/trainer/model/model_fixture.h
tests_unit_test_ops_trace_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
endif
# End of bench.mk
