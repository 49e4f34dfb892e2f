# tests/unit/top/: the unit tests of top/.
if HAVE_CMOCKA
unit_tests += tests/unit/test_dots
tests_unit_test_dots_SOURCES = tests/unit/top/test_dots.c
tests_unit_test_dots_LDADD = libtop.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_page
tests_unit_test_page_SOURCES = tests/unit/top/test_page.c tests/unit/top/view_fixture.h
tests_unit_test_page_LDADD = libtop.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_plain
tests_unit_test_plain_SOURCES = tests/unit/top/test_plain.c
tests_unit_test_plain_LDADD = libtop.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_view
tests_unit_test_view_SOURCES = tests/unit/top/test_view.c tests/unit/top/view_fixture.h
tests_unit_test_view_LDADD = libtop.la $(CMOCKA_LIBS)
endif
# End of top.mk
