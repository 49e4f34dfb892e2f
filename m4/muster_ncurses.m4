# MUSTER_NCURSES: muster-top on a whole terminal; without it, muster-top prints text.
AC_DEFUN([MUSTER_NCURSES], [
  AC_ARG_WITH([ncurses], [AS_HELP_STRING([--with-ncurses],
    [muster-top on a whole terminal, with ncurses [where it is found]])], [], [with_ncurses=auto])
  have_ncurses=no
  AS_IF([test "x$with_ncurses" != xno], [
    PKG_CHECK_MODULES([NCURSES], [ncursesw >= 6], [have_ncurses=yes], [
      AS_IF([test "x$with_ncurses" = xyes],
        [AC_MSG_ERROR([no ncurses: apt-get install libncurses-dev])])
    ])
  ])
  AS_IF([test "x$have_ncurses" = xyes],
    [AC_DEFINE([HAVE_NCURSES], [1], [muster-top can use a whole terminal.])])
  AM_CONDITIONAL([HAVE_NCURSES], [test "x$have_ncurses" = xyes])
])
