# tests/unit/checkpoint/load/: the unit tests of checkpoint/load/.
if HAVE_CMOCKA
unit_tests += tests/unit/test_ckpt
tests_unit_test_ckpt_SOURCES = tests/unit/checkpoint/load/test_ckpt.c
tests_unit_test_ckpt_LDADD = libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_golden
tests_unit_test_golden_SOURCES = tests/unit/checkpoint/load/test_golden.c \
	tests/tools/ckpt_sample.c tests/tools/ckpt_sample.h
tests_unit_test_golden_CPPFLAGS = $(AM_CPPFLAGS) -DSOURCE_DIR='"$(abs_top_srcdir)"'
tests_unit_test_golden_LDADD = libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_damage
tests_unit_test_damage_SOURCES = tests/unit/checkpoint/load/test_damage.c
tests_unit_test_damage_LDADD = libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_shard
tests_unit_test_shard_SOURCES = tests/unit/checkpoint/load/test_shard.c
tests_unit_test_shard_LDADD = libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_ckpt_diff
tests_unit_test_ckpt_diff_SOURCES = tests/unit/checkpoint/load/test_ckpt_diff.c \
	tests/tools/ckpt_sample.c tests/tools/ckpt_sample.h
tests_unit_test_ckpt_diff_LDADD = libckptcmd.la $(CMOCKA_LIBS)
endif
# End of load.mk
