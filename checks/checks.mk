# checks/: the facts about a launch and what can be wrong with them. The plugin and muster-doctor
# compile the same sources, each into its own objects.
launch_checks = \
	checks/check.c checks/check.h \
	checks/check_hooks.c \
	checks/check_node.c \
	checks/check_site.c \
	checks/check_task.c \
	checks/facts.c checks/facts.h \
	checks/facts_probe.c checks/facts_probe.h \
	checks/findings.c \
	slurm/hooks.c slurm/hooks.h
# End of checks.mk
