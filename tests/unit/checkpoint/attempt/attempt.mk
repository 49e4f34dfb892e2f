# tests/unit/checkpoint/attempt/: the unit tests of checkpoint/attempt/.
if HAVE_CMOCKA
unit_tests += tests/unit/test_machine
tests_unit_test_machine_SOURCES = tests/unit/checkpoint/attempt/test_machine.c
tests_unit_test_machine_LDADD = librun.la libcommon.la $(CMOCKA_LIBS)
endif
# End of attempt.mk
