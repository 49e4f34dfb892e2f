# MUSTER_SLURM: --with-slurm=auto|yes|no|DIR probes slurm/spank.h and libslurm (the plugin and muster-requeue).
# slurm_requeue() takes a slurm_step_id_t from release 26.05 on.
AC_DEFUN([MUSTER_SLURM], [
  AC_ARG_WITH([slurm], [AS_HELP_STRING([--with-slurm=auto|yes|no|DIR], [SPANK plugin and requeue (auto)])],
    [], [with_slurm=auto])
  have_slurm=no SLURM_CPPFLAGS= SLURM_LIBS= SLURM_LDFLAGS=
  AS_CASE([$with_slurm], [no|yes|auto], [],
    [SLURM_CPPFLAGS="-I$with_slurm/include"
     SLURM_LDFLAGS="-L$with_slurm/lib -Wl,-rpath,$with_slurm/lib"])
  AS_IF([test "x$with_slurm" != xno], [
    save_CPPFLAGS=$CPPFLAGS; save_LIBS=$LIBS; save_LDFLAGS=$LDFLAGS
    CPPFLAGS="$CPPFLAGS $SLURM_CPPFLAGS"; LDFLAGS="$LDFLAGS $SLURM_LDFLAGS"
    AC_CHECK_HEADER([slurm/spank.h],
      [AC_CHECK_LIB([slurm], [slurm_requeue], [have_slurm=yes; SLURM_LIBS="-lslurm"])])
    AS_IF([test $have_slurm = yes], [
      AC_MSG_CHECKING([the arguments of slurm_requeue])
      AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <slurm/slurm.h>]],
        [[int (*f)(uint32_t, uint32_t) = slurm_requeue; return f == 0;]])],
        [AC_MSG_RESULT([job id])],
        [AC_MSG_RESULT([step id])
         AC_DEFINE([SLURM_REQUEUE_TAKES_STEP_ID], [1], [slurm_requeue takes a slurm_step_id_t (26.05 and later)])])])
    CPPFLAGS=$save_CPPFLAGS; LIBS=$save_LIBS; LDFLAGS=$save_LDFLAGS
    AS_IF([test $have_slurm = no && test "x$with_slurm" != xauto],
      [AC_MSG_ERROR([slurm/spank.h or libslurm not found: apt-get install libslurm-dev, or --with-slurm=DIR])])])
  AS_IF([test $have_slurm = yes], [AC_DEFINE([HAVE_SLURM], [1], [Slurm's headers and library are here])])
  AM_CONDITIONAL([HAVE_SLURM], [test $have_slurm = yes])
  AC_SUBST([SLURM_CPPFLAGS])
  AC_SUBST([SLURM_LDFLAGS])
  AC_SUBST([SLURM_LIBS])
])
