# MUSTER_OPENMP: the threads of the CPU kernels. Results do not depend on it, only speed.
AC_DEFUN([MUSTER_OPENMP], [
  AC_OPENMP
  AC_SUBST([OPENMP_CFLAGS])
])
