# MUSTER_CUDA: --with-cuda=auto|yes|no|DIR probes nvcc and the CUDA runtime; --with-cuda-arch
# chooses the targets.
AC_DEFUN([MUSTER_CUDA], [
  AC_ARG_WITH([cuda], [AS_HELP_STRING([--with-cuda=auto|yes|no|DIR], [CUDA kernels (auto)])], [],
    [with_cuda=auto])
  AC_ARG_WITH([cuda-arch], [AS_HELP_STRING([--with-cuda-arch=LIST],
    [compute capabilities, such as 80,90 (80,90, and PTX of the newest)])], [],
      [with_cuda_arch=80,90])
  have_cuda=no NVCC=no CUDA_CPPFLAGS= CUDA_LIBS=
  AS_IF([test "x$with_cuda" != xno], [
    AS_CASE([$with_cuda],
      [yes|auto], [AC_PATH_PROG([NVCC], [nvcc], [no], [$PATH:/usr/local/cuda/bin])],
      [AC_PATH_PROG([NVCC], [nvcc], [no], [$with_cuda/bin])])
    AS_IF([test "$NVCC" != no], [
      cuda_dir=$(dirname "$(dirname "$(readlink -f "$NVCC")")")
      CUDA_CPPFLAGS="-isystem $cuda_dir/include" # its warnings are not ours
      cuda_lib=$cuda_dir/lib64
      CUDA_LIBS="-L$cuda_lib -Wl,-rpath,$cuda_lib -lcudart"
      save_CPPFLAGS=$CPPFLAGS; save_LIBS=$LIBS
      CPPFLAGS="$CPPFLAGS $CUDA_CPPFLAGS"; LIBS="$CUDA_LIBS $LIBS"
      AC_MSG_CHECKING([for the CUDA runtime])
      AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <cuda_runtime.h>]],
        [[int n; return cudaGetDeviceCount(&n) == 0;]])],
        [have_cuda=yes])
      AC_MSG_RESULT([$have_cuda])
      dnl Programs have to start on nodes without CUDA, too: with the runtime inside they need
      dnl nothing of it until they use it.
      AS_IF([test $have_cuda = yes], [
        static_LIBS="-L$cuda_lib -Wl,-rpath,$cuda_lib -lcudart_static -ldl -lrt -lpthread"
        LIBS="$static_LIBS $save_LIBS"
        AC_MSG_CHECKING([for the CUDA runtime as an archive])
        AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <cuda_runtime.h>]],
          [[int n; return cudaGetDeviceCount(&n) == 0;]])],
          [CUDA_LIBS=$static_LIBS; AC_MSG_RESULT([yes])], [AC_MSG_RESULT([no])])])
      CPPFLAGS=$save_CPPFLAGS; LIBS=$save_LIBS])
    AS_IF([test $have_cuda = no && test "x$with_cuda" != xauto],
      [AC_MSG_ERROR([nvcc or the CUDA runtime not found: --with-cuda=DIR names the toolkit])])])
  NVCC_ARCH=
  AS_IF([test $have_cuda = yes], [
    AC_DEFINE([HAVE_CUDA], [1], [nvcc and the CUDA runtime are here])
    for arch in $(echo "$with_cuda_arch" | tr ',' ' '); do
      NVCC_ARCH="$NVCC_ARCH -gencode=arch=compute_$arch,code=sm_$arch"
      AS_CASE([$arch], [*a], [], [ptx_arch=$arch])
    done
    AS_IF([test -n "$ptx_arch"],
      [NVCC_ARCH="$NVCC_ARCH -gencode=arch=compute_$ptx_arch,code=compute_$ptx_arch"])],
    [CUDA_LIBS=])
  AM_CONDITIONAL([HAVE_CUDA], [test $have_cuda = yes])
  AC_SUBST([NVCC])
  AC_SUBST([NVCC_ARCH])
  AC_SUBST([CUDA_CPPFLAGS])
  AC_SUBST([CUDA_LIBS])
])
