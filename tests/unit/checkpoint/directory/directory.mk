# tests/unit/checkpoint/directory/: the unit tests of checkpoint/directory/.
if HAVE_CMOCKA
unit_tests += tests/unit/test_attempts
tests_unit_test_attempts_SOURCES = tests/unit/checkpoint/directory/test_attempts.c
tests_unit_test_attempts_LDADD = libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_save_schedule
tests_unit_test_save_schedule_SOURCES = tests/unit/checkpoint/directory/test_save_schedule.c
tests_unit_test_save_schedule_LDADD = libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_ckpt_dir
tests_unit_test_ckpt_dir_SOURCES = tests/unit/checkpoint/directory/test_ckpt_dir.c $(ckpt_fixture)
tests_unit_test_ckpt_dir_LDADD = libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_pin
tests_unit_test_pin_SOURCES = tests/unit/checkpoint/directory/test_pin.c $(ckpt_fixture)
tests_unit_test_pin_LDADD = libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_removable
tests_unit_test_removable_SOURCES = tests/unit/checkpoint/directory/test_removable.c \
	tests/tools/ckpt_sample.c tests/tools/ckpt_sample.h
tests_unit_test_removable_LDADD = libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_retention
tests_unit_test_retention_SOURCES = tests/unit/checkpoint/directory/test_retention.c
tests_unit_test_retention_LDADD = libcheckpoint.la $(CMOCKA_LIBS)
tests_unit_test_owner_SOURCES = tests/unit/checkpoint/directory/test_owner.c \
	tests/tools/ckpt_sample.c tests/tools/ckpt_sample.h
tests_unit_test_owner_LDADD = libcheckpoint.la $(CMOCKA_LIBS)
endif
# End of directory.mk
