# tests/unit/telemetry/: the unit tests of telemetry/.
if HAVE_CMOCKA
unit_tests += tests/unit/test_flight
tests_unit_test_flight_SOURCES = tests/unit/telemetry/test_flight.c
tests_unit_test_flight_LDADD = libtelemetry.la libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_trace
tests_unit_test_trace_SOURCES = tests/unit/telemetry/test_trace.c \
	tests/unit/trainer/comm/world_fixture.c tests/unit/trainer/comm/world_fixture.h
tests_unit_test_trace_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
endif
# End of telemetry.mk
