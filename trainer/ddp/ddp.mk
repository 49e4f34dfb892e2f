# trainer/ddp/: data parallelism: the gradients of all slots, summed over one fixed tree.
libtrainer_a_SOURCES += \
	trainer/ddp/ddp.c trainer/ddp/ddp.h \
	trainer/ddp/ddp_control.c \
	trainer/ddp/ddp_dry_run.c trainer/ddp/ddp_dry_run.h \
	trainer/ddp/ddp_nodes.c trainer/ddp/ddp_nodes.h \
	trainer/ddp/ddp_plan.c trainer/ddp/ddp_plan.h \
	trainer/ddp/ddp_private.h \
	trainer/ddp/ddp_stage.c \
	trainer/ddp/ddp_step.c \
	trainer/ddp/ddp_sum.c \
	trainer/ddp/ddp_transfers.c \
	trainer/ddp/ddp_zero.c
# End of ddp.mk
