# MUSTER_DNNL: --with-dnnl=auto|yes|no|DIR probes oneDNN, the CPU's matrix products; without it
# plain C does them.
AC_DEFUN([MUSTER_DNNL], [
  AC_ARG_WITH([dnnl], [AS_HELP_STRING([--with-dnnl=auto|yes|no|DIR],
    [oneDNN matrix products (auto)])],
    [], [with_dnnl=auto])
  have_dnnl=no DNNL_CPPFLAGS= DNNL_LIBS="-ldnnl"
  AS_CASE([$with_dnnl], [no|yes|auto], [],
    [DNNL_CPPFLAGS="-I$with_dnnl/include"
    DNNL_LIBS="-L$with_dnnl/lib -Wl,-rpath,$with_dnnl/lib -ldnnl"])
  AS_IF([test "x$with_dnnl" != xno], [
    save_CPPFLAGS=$CPPFLAGS; save_LIBS=$LIBS
    CPPFLAGS="$CPPFLAGS $DNNL_CPPFLAGS"; LIBS="$DNNL_LIBS $LIBS"
    AC_MSG_CHECKING([for oneDNN])
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <dnnl.h>]],
      [[float a = 0; return dnnl_sgemm('N', 'N', 1, 1, 1, 1.f, &a, 1, &a, 1, 0.f, &a, 1);]])],
        [have_dnnl=yes])
    AC_MSG_RESULT([$have_dnnl])
    CPPFLAGS=$save_CPPFLAGS; LIBS=$save_LIBS
    AS_IF([test $have_dnnl = no && test "x$with_dnnl" != xauto],
      [AC_MSG_ERROR([oneDNN not found: apt-get install libdnnl-dev, or --with-dnnl=DIR])])])
  AS_IF([test $have_dnnl = yes], [AC_DEFINE([HAVE_DNNL], [1], [oneDNN is here])], [DNNL_LIBS=])
  AM_CONDITIONAL([HAVE_DNNL], [test $have_dnnl = yes])
  AC_SUBST([DNNL_CPPFLAGS])
  AC_SUBST([DNNL_LIBS])
])
