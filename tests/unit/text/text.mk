# tests/unit/text/: the unit tests of text/.
if HAVE_CMOCKA
if HAVE_BPE
unit_tests += tests/unit/test_bpe
tests_unit_test_bpe_SOURCES = tests/unit/text/test_bpe.c
tests_unit_test_bpe_LDADD = libtext.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_tokenizer
tests_unit_test_tokenizer_SOURCES = tests/unit/text/test_tokenizer.c
tests_unit_test_tokenizer_LDADD = libtext.la $(CMOCKA_LIBS)
endif
endif
# End of text.mk
