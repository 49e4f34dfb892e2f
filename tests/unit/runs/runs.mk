# tests/unit/runs/: the unit tests of runs/.
if HAVE_CMOCKA
unit_tests += tests/unit/test_history
tests_unit_test_history_SOURCES = tests/unit/runs/test_history.c
tests_unit_test_history_LDADD = libruns.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_report
tests_unit_test_report_SOURCES = tests/unit/runs/test_report.c tests/unit/runs/run_folder.h
tests_unit_test_report_LDADD = libruns.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_run
tests_unit_test_run_SOURCES = tests/unit/runs/test_run.c tests/unit/runs/run_folder.h
tests_unit_test_run_LDADD = libruns.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_run_table
tests_unit_test_run_table_SOURCES = tests/unit/runs/test_run_table.c
tests_unit_test_run_table_LDADD = libruns.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_scaling
tests_unit_test_scaling_SOURCES = tests/unit/runs/test_scaling.c
tests_unit_test_scaling_LDADD = libruns.la $(trainer_LIBS) $(CMOCKA_LIBS)
endif
# End of runs.mk
