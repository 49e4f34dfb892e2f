# slurm/: a site's Slurm, and the programs that call its controller: muster-requeue and
# muster-first-node.
if HAVE_SLURM
libexec_PROGRAMS = muster-first-node muster-requeue
muster_requeue_SOURCES = slurm/muster_requeue.c slurm/breaker.c slurm/breaker.h slurm/later.h \
	slurm/leave_out.c slurm/leave_out.h slurm/requeue.c slurm/requeue.h slurm/slurm_compat.h
muster_requeue_CPPFLAGS = $(AM_CPPFLAGS) $(SLURM_CPPFLAGS)
muster_requeue_LDFLAGS = $(AM_LDFLAGS) $(SLURM_LDFLAGS)
muster_requeue_LDADD = libcommon.la $(SLURM_LIBS)

muster_first_node_SOURCES = slurm/muster_first_node.c slurm/step_layout.c slurm/step_layout.h
muster_first_node_CPPFLAGS = $(AM_CPPFLAGS) $(SLURM_CPPFLAGS)
muster_first_node_LDFLAGS = $(AM_LDFLAGS) $(SLURM_LDFLAGS)
muster_first_node_LDADD = libcommon.la $(SLURM_LIBS)
else
libexec_SCRIPTS = muster-requeue
CLEANFILES += muster-requeue
muster-requeue: slurm/muster_requeue_scontrol.sh
	$(AM_V_GEN)cp $(srcdir)/slurm/muster_requeue_scontrol.sh $@ && chmod +x $@
endif
EXTRA_DIST += slurm/muster_requeue_scontrol.sh
# End of slurm.mk
