# front/: muster, one door to the programs, and completion for bash.
dist_bin_SCRIPTS = front/muster
EXTRA_DIST += front/completion.bash
completions = $(DESTDIR)$(datadir)/bash-completion/completions
completed = muster muster-ckpt muster-curve muster-doctor muster-eval muster-generate \
	muster-notice muster-rdzv muster-report muster-run muster-tokens muster-top muster-train \
	muster-where
# bash looks for a file by the command's name.
install-data-hook:
	$(MKDIR_P) $(completions)
	for name in $(completed); do \
		$(INSTALL_DATA) $(srcdir)/front/completion.bash $(completions)/$$name || exit; done
uninstall-hook:
	for name in $(completed); do rm -f $(completions)/$$name; done
	rm -rf $(DESTDIR)$(packagedir)/__pycache__
	for folder in $(own_folders); do \
		[ ! -d $(DESTDIR)$$folder ] || rmdir $(DESTDIR)$$folder; done
# End of front.mk
