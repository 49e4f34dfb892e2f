# MUSTER_CURL: muster-notice, which asks a cloud's metadata service, with libcurl.
AC_DEFUN([MUSTER_CURL], [
  AC_ARG_WITH([curl], [AS_HELP_STRING([--with-curl],
    [muster-notice, for spot notices, with libcurl [where it is found]])], [], [with_curl=auto])
  have_curl=no
  AS_IF([test "x$with_curl" != xno], [
    PKG_CHECK_MODULES([CURL], [libcurl >= 7.85], [have_curl=yes], [
      AS_IF([test "x$with_curl" = xyes],
        [AC_MSG_ERROR([no libcurl: apt-get install libcurl4-openssl-dev])])
    ])
  ])
  AM_CONDITIONAL([HAVE_CURL], [test "x$have_curl" = xyes])
])
