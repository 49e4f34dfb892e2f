# tests/unit/trainer/generate/: the unit tests of trainer/generate/.
if HAVE_CMOCKA
unit_tests += tests/unit/test_decoder
tests_unit_test_decoder_SOURCES = tests/unit/trainer/generate/test_decoder.c
tests_unit_test_decoder_LDADD = $(trainer_LIBS) libckptcmd.la libcheckpoint.la libcommon.la \
	$(CMOCKA_LIBS)
unit_tests += tests/unit/test_token_choice
tests_unit_test_token_choice_SOURCES = tests/unit/trainer/generate/test_token_choice.c
tests_unit_test_token_choice_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
endif
# End of generate.mk
