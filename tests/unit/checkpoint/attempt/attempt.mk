# tests/unit/checkpoint/attempt/: the unit tests of checkpoint/attempt/.
if HAVE_CMOCKA
unit_tests += tests/unit/test_machine
tests_unit_test_machine_SOURCES = tests/unit/checkpoint/attempt/test_machine.c
tests_unit_test_machine_LDADD = librun.la libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_time_limit
tests_unit_test_time_limit_SOURCES = tests/unit/checkpoint/attempt/test_time_limit.c
tests_unit_test_time_limit_LDADD = librun.la libcheckpoint.la libcommon.la $(CMOCKA_LIBS)
endif
# End of attempt.mk
