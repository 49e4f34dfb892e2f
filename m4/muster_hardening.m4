# MUSTER_HARDENING: what the compiler and the linker have against an attacker. tests/hardening.bats
# looks at what came of it. A flag that the caller's own CFLAGS make impossible is left out: no
# _FORTIFY_SOURCE without optimisation, or over another.
AC_DEFUN([MUSTER_HARDENING], [
  muster_hardening=
  MUSTER_HARDENING_TRY([-fstack-protector-strong])
  MUSTER_HARDENING_TRY([-fstack-clash-protection])
  MUSTER_HARDENING_TRY([-fcf-protection=full])
  MUSTER_HARDENING_TRY([-mbranch-protection=standard])
  # The sanitizers watch the plain functions.
  AS_IF([test "x$enable_sanitize" = xno], [
    MUSTER_HARDENING_TRY([-D_FORTIFY_SOURCE=3], [MUSTER_HARDENING_TRY([-D_FORTIFY_SOURCE=2])])])
  MUSTER_LDFLAGS="-Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack"
  AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[
    #ifndef __PIE__
    #error no
    #endif]])], [], [muster_hardening="$muster_hardening -fPIE"
    MUSTER_LDFLAGS="$MUSTER_LDFLAGS -pie"])
  MUSTER_CFLAGS="$MUSTER_CFLAGS$muster_hardening"
  MUSTER_CXXFLAGS="$MUSTER_CXXFLAGS$muster_hardening"
  AC_SUBST([MUSTER_LDFLAGS])
])

# MUSTER_HARDENING_TRY(FLAG, [OTHERWISE]): adds a flag with which a program compiles without a
# warning.
AC_DEFUN([MUSTER_HARDENING_TRY], [
  AC_MSG_CHECKING([whether $CC takes $1])
  muster_saved_CFLAGS=$CFLAGS
  CFLAGS="$CFLAGS -Werror $1"
  AC_COMPILE_IFELSE([AC_LANG_SOURCE([[#include <string.h>
    int main(void) { return 0; }]])], [muster_takes=yes], [muster_takes=no])
  CFLAGS=$muster_saved_CFLAGS
  AC_MSG_RESULT([$muster_takes])
  AS_IF([test $muster_takes = yes], [muster_hardening="$muster_hardening $1"], [:
    $2])
])
