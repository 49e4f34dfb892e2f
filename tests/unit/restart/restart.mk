# tests/unit/restart/: the unit tests of restart/.
if HAVE_CMOCKA
if HAVE_SLURM
unit_tests += tests/unit/test_nodes
tests_unit_test_nodes_SOURCES = tests/unit/restart/test_nodes.c
tests_unit_test_nodes_LDADD = librestart.la libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_reach
tests_unit_test_reach_SOURCES = tests/unit/restart/test_reach.c
tests_unit_test_reach_LDADD = librestart.la libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_step
tests_unit_test_step_SOURCES = tests/unit/restart/test_step.c
tests_unit_test_step_LDADD = librestart.la libcommon.la $(CMOCKA_LIBS)
endif
endif
# End of restart.mk
