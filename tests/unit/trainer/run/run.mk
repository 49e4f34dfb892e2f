# tests/unit/trainer/run/: the unit tests of trainer/run/.
if HAVE_CMOCKA
unit_tests += tests/unit/test_settings
tests_unit_test_settings_SOURCES = tests/unit/trainer/run/test_settings.c
tests_unit_test_settings_LDADD = $(trainer_LIBS) libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_save_scheduler
tests_unit_test_save_scheduler_SOURCES = tests/unit/trainer/run/test_save_scheduler.c
tests_unit_test_save_scheduler_LDADD = $(trainer_LIBS) libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_event_file
tests_unit_test_event_file_SOURCES = tests/unit/trainer/run/test_event_file.c
tests_unit_test_event_file_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
unit_tests += tests/unit/test_metrics
tests_unit_test_metrics_SOURCES = tests/unit/trainer/run/test_metrics.c
tests_unit_test_metrics_LDADD = libruns.la $(trainer_LIBS) $(CMOCKA_LIBS)
unit_tests += tests/unit/test_mfu
tests_unit_test_mfu_SOURCES = tests/unit/trainer/run/test_mfu.c
tests_unit_test_mfu_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
unit_tests += tests/unit/test_estimate
tests_unit_test_estimate_SOURCES = tests/unit/trainer/run/test_estimate.c
tests_unit_test_estimate_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
unit_tests += tests/unit/test_scaling_hint
tests_unit_test_scaling_hint_SOURCES = tests/unit/trainer/run/test_scaling_hint.c
tests_unit_test_scaling_hint_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
unit_tests += tests/unit/test_arena_source
tests_unit_test_arena_source_SOURCES = tests/unit/trainer/run/test_arena_source.c \
	tests/fakes/device_memory_ops.c tests/fakes/device_memory_ops.h
tests_unit_test_arena_source_LDADD = $(trainer_LIBS) libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_sample_text
tests_unit_test_sample_text_SOURCES = tests/unit/trainer/run/test_sample_text.c \
	tests/fakes/device_memory_ops.c tests/fakes/device_memory_ops.h
tests_unit_test_sample_text_LDADD = $(trainer_LIBS) libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_validate
tests_unit_test_validate_SOURCES = tests/unit/trainer/run/test_validate.c \
	tests/unit/trainer/model/model_fixture.c tests/unit/trainer/model/model_fixture.h \
	tests/unit/trainer/comm/world_fixture.c tests/unit/trainer/comm/world_fixture.h
tests_unit_test_validate_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
endif
# End of run.mk
