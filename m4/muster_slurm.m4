# MUSTER_SLURM: --with-slurm=auto|yes|no|DIR probes slurm/spank.h and libslurm (the plugin and
# muster-requeue). What differs between releases is probed here, and used in slurm/slurm_compat.h
# alone.
AC_DEFUN([MUSTER_SLURM], [
  AC_ARG_WITH([slurm], [AS_HELP_STRING([--with-slurm=auto|yes|no|DIR],
    [SPANK plugin and requeue (auto)])],
    [], [with_slurm=auto])
  have_slurm=no SLURM_CPPFLAGS= SLURM_LIBS= SLURM_LDFLAGS=
  AS_CASE([$with_slurm], [no|yes|auto], [],
    [SLURM_CPPFLAGS="-isystem $with_slurm/include"
     SLURM_LDFLAGS="-L$with_slurm/lib -Wl,-rpath,$with_slurm/lib"])
  AS_IF([test "x$with_slurm" != xno], [
    save_CPPFLAGS=$CPPFLAGS; save_LIBS=$LIBS; save_LDFLAGS=$LDFLAGS
    CPPFLAGS="$CPPFLAGS $SLURM_CPPFLAGS"; LDFLAGS="$LDFLAGS $SLURM_LDFLAGS"
    AC_CHECK_HEADER([slurm/spank.h],
      [AC_CHECK_LIB([slurm], [slurm_requeue], [have_slurm=yes; SLURM_LIBS="-lslurm"])])
    AS_IF([test $have_slurm = yes], [
      AC_MSG_CHECKING([what slurm_requeue takes])
      AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <slurm/slurm.h>]],
        [[_Static_assert(__builtin_types_compatible_p(__typeof__(slurm_requeue),
          int(uint32_t, uint32_t)), "");]])],
        [AC_MSG_RESULT([a job id])],
        [AC_MSG_RESULT([a step id])
         AC_DEFINE([SLURM_CALLS_TAKE_STEP_ID], [1],
           [slurm_load_job and slurm_requeue take a slurm_step_id_t])])
      AC_CHECK_MEMBER([job_desc_msg_t.step_id],
        [AC_DEFINE([SLURM_JOB_DESC_HAS_STEP_ID], [1],
          [job_desc_msg_t names its job by a slurm_step_id_t])], [],
        [[#include <slurm/slurm.h>]])
      AC_CHECK_MEMBER([slurm_conf_t.epilog_timeout],
        [AC_DEFINE([SLURM_CONF_HAS_EPILOG_TIMEOUT], [1],
          [slurm_conf_t has a timeout of the epilog alone])], [],
        [[#include <slurm/slurm.h>]])
      AC_CHECK_DECLS([SLURM_PROTOCOL_SOCKET_IMPL_ZERO_RECV_LENGTH, SLURMCTLD_COMMUNICATIONS_BACKOFF,
        SLURMCTLD_COMMUNICATIONS_HARD_DROP, SLURM_COMMUNICATIONS_CONNECT_TIMEOUT], [], [],
          [[#include <slurm/slurm_errno.h>]])])
    CPPFLAGS=$save_CPPFLAGS; LIBS=$save_LIBS; LDFLAGS=$save_LDFLAGS
    AS_IF([test $have_slurm = no && test "x$with_slurm" != xauto],
      [AC_MSG_ERROR([slurm/spank.h or libslurm not found: dnl
apt-get install libslurm-dev, or --with-slurm=DIR])])])
  AS_IF([test $have_slurm = yes], [AC_DEFINE([HAVE_SLURM], [1],
    [Slurm's headers and library are here])])
  AM_CONDITIONAL([HAVE_SLURM], [test $have_slurm = yes])
  AC_SUBST([SLURM_CPPFLAGS])
  AC_SUBST([SLURM_LDFLAGS])
  AC_SUBST([SLURM_LIBS])
])
