# doc/
dist_man1_MANS += doc/muster.1
dist_man1_MANS += doc/muster-ckpt.1 doc/muster-curve.1 doc/muster-eval.1 doc/muster-generate.1 \
	doc/muster-notice.1 doc/muster-report.1 doc/muster-run.1 doc/muster-tokens.1 doc/muster-top.1 \
	doc/muster-train.1 doc/muster-where.1
dist_man1_MANS += doc/muster-doctor.1 doc/muster-rdzv.1
dist_man3_MANS += doc/muster.3
dist_man7_MANS += doc/muster-environment.7
dist_man8_MANS += doc/muster-ckptd.8 doc/muster-first-node.8 doc/muster-requeue.8 doc/spank_muster.8
# The documents name each other, so an installation has the README beside doc/.
dist_doc_DATA = README.md HACKING.md CONTRIBUTING.md CHANGELOG.md SECURITY.md
documentsdir = $(docdir)/doc
dist_documents_DATA = \
	doc/bootstrap.md \
	doc/checkpoint-format.md \
	doc/ckptd-protocol.md \
	doc/comm-nccl.md \
	doc/cuda-shim.md \
	doc/exit-status.md \
	doc/first-failure.md \
	doc/flight-recorder-format.md \
	doc/gemm-plans-format.md \
	doc/glossary.md \
	doc/launch-faults.md \
	doc/metrics-format.md \
	doc/models.md \
	doc/packages.md \
	doc/presence.md \
	doc/pytorch-canonical.md \
	doc/pytorch-dcp.md \
	doc/pytorch-frameworks.md \
	doc/pytorch.md \
	doc/rank-links.md \
	doc/slurm-releases.md \
	doc/step-word.md \
	doc/storms.md \
	doc/testing.md \
	doc/training-faults.md
guidedir = $(documentsdir)/guide
dist_guide_DATA = \
	doc/guide/administrator.md \
	doc/guide/benchmarks.md \
	doc/guide/checkpoints.md \
	doc/guide/design.md \
	doc/guide/first-minute.md \
	doc/guide/migrating.md \
	doc/guide/programs.md \
	doc/guide/trainer.md \
	doc/guide/troubleshooting.md
picturesdir = $(documentsdir)/images
dist_pictures_DATA = \
	doc/images/how-it-works.svg \
	doc/images/report.png \
	doc/images/site.png \
	doc/images/top.png \
	doc/images/two-runs.svg
own_folders += $(guidedir) $(picturesdir) $(documentsdir) $(examplesdir) $(docdir)
EXTRA_DIST += doc/images/how-it-works.dot doc/images/draw.sh
EXTRA_DIST += doc/site/build.sh doc/site/conf.py doc/site/index.md

# The web site, in the folder `site`; REPORT=FILE is shown as the finished report.
.PHONY: site
site:
	$(AM_V_GEN)REPORT="$(REPORT)" $(srcdir)/doc/site/build.sh site
# End of doc.mk
