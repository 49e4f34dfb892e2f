# MUSTER_SUMMARY: what was found, and what a build without it lacks.
AC_DEFUN([MUSTER_SUMMARY], [
  AC_MSG_NOTICE([
  Muster $PACKAGE_VERSION
    prefix .............. $prefix
    Slurm (plugin) ...... $have_slurm
    PMIx (rendezvous) ... $have_pmix
    oneDNN (products) ... $have_dnnl
    CUDA ................ $have_cuda${NVCC_ARCH:+ ($with_cuda_arch)}
    cuBLASLt ............ $have_cublas
    cuDNN (attention) ... $have_cudnn
    NCCL ................ $have_nccl
    BPE (tokenizers) .... $have_bpe
    dygraphs (report) ... $have_dygraphs
    ncurses (top) ....... $have_ncurses
    unit tests .......... $have_cmocka
    FUSE (tests) ........ $have_fuse
    sanitizers .......... $enable_sanitize
  Now: make -j2 && make install
  ])
])
