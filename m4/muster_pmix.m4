# MUSTER_PMIX: --with-pmix=auto|yes|no|DIR probes the PMIx client library (the primary rendezvous).
AC_DEFUN([MUSTER_PMIX], [
  AC_ARG_WITH([pmix], [AS_HELP_STRING([--with-pmix=auto|yes|no|DIR], [PMIx rendezvous (auto)])],
    [], [with_pmix=auto])
  have_pmix=no
  AS_CASE([$with_pmix], [no], [],
    [yes|auto], [PKG_CHECK_MODULES([PMIX], [pmix >= 3], [have_pmix=yes], [have_pmix=no])
    PKG_CHECK_VAR([PMIX_LIBDIR], [pmix], [libdir])],
    [PMIX_CFLAGS="-I$with_pmix/include"
    PMIX_LIBS="-L$with_pmix/lib -Wl,-rpath,$with_pmix/lib -lpmix"; PMIX_LIBDIR=$with_pmix/lib
    have_pmix=yes])
  AS_IF([test $have_pmix = no && test "x$with_pmix" = xyes],
    [AC_MSG_ERROR([PMIx not found: apt-get install libpmix-dev, or --with-pmix=DIR])])
  AS_IF([test $have_pmix = yes], [AC_DEFINE([HAVE_PMIX], [1], [The PMIx client library is here])])
  AM_CONDITIONAL([HAVE_PMIX], [test $have_pmix = yes])
  AC_SUBST([PMIX_CFLAGS])
  AC_SUBST([PMIX_LIBS]) dnl for a benchmark; libmuster loads PMIx on first use
  AC_SUBST([PMIX_LIBDIR])
])
