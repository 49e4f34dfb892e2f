# tests/unit/trainer/data/: the unit tests of trainer/data/.
if HAVE_CMOCKA
unit_tests += tests/unit/test_dataset
tests_unit_test_dataset_SOURCES = tests/unit/trainer/data/test_dataset.c
tests_unit_test_dataset_LDADD = libtrainer.a liborder.la libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_file_list
tests_unit_test_file_list_SOURCES = tests/unit/trainer/data/test_file_list.c
tests_unit_test_file_list_LDADD = libtrainer.a libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_token_shards
tests_unit_test_token_shards_SOURCES = \
	tests/unit/trainer/data/test_token_shards.c tests/unit/files.h
tests_unit_test_token_shards_LDADD = libtrainer.a libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_prefetch
tests_unit_test_prefetch_SOURCES = tests/unit/trainer/data/test_prefetch.c
tests_unit_test_prefetch_LDADD = libtrainer.a liborder.la libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_feed
tests_unit_test_feed_SOURCES = tests/unit/trainer/data/test_feed.c
tests_unit_test_feed_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
endif
# End of data.mk
