# tests/unit/plugin/: the unit tests of plugin/.
if HAVE_CMOCKA
unit_tests += tests/unit/test_rank_env
tests_unit_test_rank_env_SOURCES = tests/unit/plugin/test_rank_env.c plugin/rank_env.c
tests_unit_test_rank_env_LDADD = libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_preflight
tests_unit_test_preflight_SOURCES = tests/unit/plugin/test_preflight.c plugin/preflight.c \
	checks/site_mpi.c
tests_unit_test_preflight_LDADD = libdoctor.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_first_end
tests_unit_test_first_end_SOURCES = tests/unit/plugin/test_first_end.c plugin/first_end.c \
	plugin/task_end.c
tests_unit_test_first_end_LDADD = libcommon.la $(CMOCKA_LIBS)
tests_unit_test_end_channel_SOURCES = tests/unit/plugin/test_end_channel.c $(partial_io) \
	plugin/end_channel.c plugin/first_end.c plugin/task_end.c
tests_unit_test_end_channel_LDADD = libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_task_end
tests_unit_test_task_end_SOURCES = tests/unit/plugin/test_task_end.c plugin/task_end.c
tests_unit_test_task_end_LDADD = libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_job_folder
tests_unit_test_job_folder_SOURCES = tests/unit/plugin/test_job_folder.c plugin/job_folder.c
tests_unit_test_job_folder_LDADD = libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_left_stepd
tests_unit_test_left_stepd_SOURCES = tests/unit/plugin/test_left_stepd.c plugin/left_stepd.c
tests_unit_test_left_stepd_LDADD = libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_skip_step
tests_unit_test_skip_step_SOURCES = tests/unit/plugin/test_skip_step.c plugin/skip_step.c
tests_unit_test_skip_step_LDADD = libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_wish
tests_unit_test_wish_SOURCES = tests/unit/plugin/test_wish.c plugin/wish.c plugin/job_folder.c
tests_unit_test_wish_LDADD = libcommon.la $(CMOCKA_LIBS)
tests_unit_test_job_service_SOURCES = tests/unit/plugin/test_job_service.c plugin/job_service.c \
	plugin/job_folder.c
tests_unit_test_job_service_LDADD = libcommon.la $(CMOCKA_LIBS)
endif
# End of plugin.mk
