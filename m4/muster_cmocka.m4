# MUSTER_CMOCKA: the unit tests' framework; without it `make check` has no unit tests.
AC_DEFUN([MUSTER_CMOCKA], [
  PKG_CHECK_MODULES([CMOCKA], [cmocka >= 1.1], [have_cmocka=yes], [have_cmocka=no])
  AM_CONDITIONAL([HAVE_CMOCKA], [test "x$have_cmocka" = xyes])
])
