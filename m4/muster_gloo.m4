# MUSTER_GLOO: --with-gloo=auto|yes|no|DIR probes Gloo, which carries gradients between CPU ranks.
# Its headers need C++14; the C++ files of the project are the shim over it, which gives Gloo's pairs connections that are made
# already: that is possible with Gloo as it was in 2022, where each pair listens for itself.
AC_DEFUN([MUSTER_GLOO], [
  AC_ARG_WITH([gloo], [AS_HELP_STRING([--with-gloo=auto|yes|no|DIR], [Gloo communicator (auto)])],
    [], [with_gloo=auto])
  have_gloo=no GLOO_CPPFLAGS= GLOO_LIBS="-lgloo -lstdc++"
  AS_CASE([$with_gloo], [no|yes|auto], [],
    [GLOO_CPPFLAGS="-I$with_gloo/include"; GLOO_LIBS="-L$with_gloo/lib $GLOO_LIBS"])
  AS_IF([test "x$with_gloo" != xno], [
    AC_LANG_PUSH([C++])
    save_CPPFLAGS=$CPPFLAGS; save_LIBS=$LIBS
    GLOO_CPPFLAGS="$GLOO_CPPFLAGS -idirafter \$(srcdir)/trainer/comm/gloo-headers"
    CPPFLAGS="$CPPFLAGS `echo "$GLOO_CPPFLAGS" | sed 's|\$(srcdir)|'"$srcdir"'|'`"; LIBS="$GLOO_LIBS $LIBS"
    AC_MSG_CHECKING([for Gloo])
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <gloo/context.h>
      #include <gloo/transport/tcp/pair.h>
      struct Pair : gloo::transport::tcp::Pair {
        using gloo::transport::tcp::Pair::Pair;
        void adopt(int fd) { if (state_ == LISTENING) { fd_ = fd; handleConnected(); } }
      };]],
      [[gloo::Context c(0, 1); Pair pair(nullptr, nullptr, 0, gloo::kNoTimeout); pair.adopt(0); return c.size != 1;]])], [have_gloo=yes])
    AC_MSG_RESULT([$have_gloo])
    CPPFLAGS=$save_CPPFLAGS; LIBS=$save_LIBS
    AC_LANG_POP([C++])
    AS_IF([test $have_gloo = no && test "x$with_gloo" != xauto],
      [AC_MSG_ERROR([Gloo of 2022 not found: apt-get install libgloo-dev, or --with-gloo=DIR])])])
  AS_IF([test $have_gloo = yes], [AC_DEFINE([HAVE_GLOO], [1], [Gloo is here])], [GLOO_LIBS=])
  AM_CONDITIONAL([HAVE_GLOO], [test $have_gloo = yes])
  AC_SUBST([GLOO_CPPFLAGS])
  AC_SUBST([GLOO_LIBS])
])
