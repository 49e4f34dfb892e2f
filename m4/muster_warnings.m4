# MUSTER_WARNINGS: the warnings of every C file; --enable-werror makes them fatal.
# The floating-point flags belong to the results: no contraction, no reassociation (see
# trainer/ops/ops.h).
AC_DEFUN([MUSTER_WARNINGS], [
  AC_ARG_ENABLE([werror], [AS_HELP_STRING([--enable-werror], [make compiler warnings fatal])],
    [], [enable_werror=no])
  MUSTER_CFLAGS="-Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wformat=2"
  MUSTER_CFLAGS="$MUSTER_CFLAGS -Wno-unused-parameter -Wno-format-truncation"
  MUSTER_CFLAGS="$MUSTER_CFLAGS -ffp-contract=off -fvisibility=hidden"
  MUSTER_CXXFLAGS="-Wall -Wextra -ffp-contract=off"
  AS_IF([test "x$enable_werror" = xyes], [
    MUSTER_CFLAGS="$MUSTER_CFLAGS -Werror"; MUSTER_CXXFLAGS="$MUSTER_CXXFLAGS -Werror"])
  AC_SUBST([MUSTER_CFLAGS])
  AC_SUBST([MUSTER_CXXFLAGS])
])
