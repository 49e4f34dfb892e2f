# tests/unit/checkpoint/client/: the unit tests of checkpoint/client/.
if HAVE_CMOCKA
unit_tests += tests/unit/test_ckptd_client
tests_unit_test_ckptd_client_SOURCES = tests/unit/checkpoint/client/test_ckptd_client.c \
	$(ckptd_fixture)
tests_unit_test_ckptd_client_LDADD = libckptd.la libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_ckptd_entries
tests_unit_test_ckptd_entries_SOURCES = tests/unit/checkpoint/client/test_ckptd_entries.c
tests_unit_test_ckptd_entries_LDADD = libckptd.la libcheckpoint.la $(CMOCKA_LIBS)
endif
# End of client.mk
