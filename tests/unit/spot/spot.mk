# tests/unit/spot/: the unit tests of spot/.
if HAVE_CMOCKA
unit_tests += tests/unit/test_reply
tests_unit_test_reply_SOURCES = tests/unit/spot/test_reply.c
tests_unit_test_reply_LDADD = libspot.la libcommon.la $(CMOCKA_LIBS)
endif
# End of spot.mk
