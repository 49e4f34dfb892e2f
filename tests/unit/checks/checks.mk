# tests/unit/checks/: the unit tests of checks/.
if HAVE_CMOCKA
unit_tests += tests/unit/test_facts
tests_unit_test_facts_SOURCES = tests/unit/checks/test_facts.c
tests_unit_test_facts_LDADD = libdoctor.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_site
tests_unit_test_site_SOURCES = tests/unit/checks/test_site.c
tests_unit_test_site_LDADD = libdoctor.la $(CMOCKA_LIBS)
# It looks for a symbol in its own file, as in a plugin's.
tests_unit_test_site_LDFLAGS = $(AM_LDFLAGS) -Wl,--export-dynamic
unit_tests += tests/unit/test_check
tests_unit_test_check_SOURCES = tests/unit/checks/test_check.c tests/unit/checks/check_launch.c \
	tests/unit/checks/check_launch.h
tests_unit_test_check_LDADD = libdoctor.la $(CMOCKA_LIBS)
endif
# End of checks.mk
