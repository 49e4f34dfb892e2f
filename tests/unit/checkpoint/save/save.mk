# tests/unit/checkpoint/save/: the unit tests of checkpoint/save/.
if HAVE_CMOCKA
ckpt_fixture = tests/unit/checkpoint/save/ckpt_fixture.c tests/unit/checkpoint/save/ckpt_fixture.h \
	tests/tools/ckpt_sample.c tests/tools/ckpt_sample.h
unit_tests += tests/unit/test_ckpt_save
tests_unit_test_ckpt_save_SOURCES = tests/unit/checkpoint/save/test_ckpt_save.c $(ckpt_fixture)
tests_unit_test_ckpt_save_LDADD = libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_ckpt_part
tests_unit_test_ckpt_part_SOURCES = tests/unit/checkpoint/save/test_ckpt_part.c $(ckpt_fixture)
tests_unit_test_ckpt_part_LDADD = libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_shard_write
tests_unit_test_shard_write_SOURCES = tests/unit/checkpoint/save/test_shard_write.c
tests_unit_test_shard_write_LDADD = libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_shard_plan
tests_unit_test_shard_plan_SOURCES = tests/unit/checkpoint/save/test_shard_plan.c
tests_unit_test_shard_plan_LDADD = libcheckpoint.la $(CMOCKA_LIBS)
endif
# End of save.mk
