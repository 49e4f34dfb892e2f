# tests/unit/trainer/tools/: the unit tests of trainer/tools/.
if HAVE_CMOCKA
unit_tests += tests/unit/test_scaling
tests_unit_test_scaling_SOURCES = tests/unit/trainer/tools/test_scaling.c
tests_unit_test_scaling_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
endif
# End of tools.mk
