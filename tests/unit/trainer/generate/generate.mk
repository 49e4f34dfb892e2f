# tests/unit/trainer/generate/: the unit tests of trainer/generate/.
if HAVE_CMOCKA
unit_tests += tests/unit/test_decoder
tests_unit_test_decoder_SOURCES = tests/unit/trainer/generate/test_decoder.c
tests_unit_test_decoder_LDADD = $(trainer_LIBS) libckptcmd.la libcheckpoint.la libcommon.la \
	$(CMOCKA_LIBS)
unit_tests += tests/unit/test_token_choice
tests_unit_test_token_choice_SOURCES = tests/unit/trainer/generate/test_token_choice.c
tests_unit_test_token_choice_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
unit_tests += tests/unit/test_continuation
tests_unit_test_continuation_SOURCES = tests/unit/trainer/generate/test_continuation.c
tests_unit_test_continuation_LDADD = $(trainer_LIBS) libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_spelling
tests_unit_test_spelling_SOURCES = tests/unit/trainer/generate/test_spelling.c
tests_unit_test_spelling_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
unit_tests += tests/unit/test_one_line
tests_unit_test_one_line_SOURCES = tests/unit/trainer/generate/test_one_line.c
tests_unit_test_one_line_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
endif
# End of generate.mk
